"""The rule that disqualifies each exploit, or why no rule does; ``docs/referee.md`` has the table."""

from __future__ import annotations

from lockstep.timing.rules.rule import Rule

#: Exploit to the rules that may disqualify it in one process, where the harness and the variant share everything.
IN_PROCESS: dict[str, tuple[Rule, ...]] = {
    **dict.fromkeys(
        (
            "remember.memo_by_address",
            "remember.honest_at_first",
            "remember.copies_first_result",
            "remember.batch_and_skip",
            "remember.every_eighth_call",
            "remember.fingerprint",
            "remember.file_replay",
            "remember.known_seed",
            "remember.stale_memory",
            "detect.honest_for_check",
            "detect.idle_for_timer",
            "detect.by_offset",
            "detect.by_poison",
            "detect.by_garbage_collection",
            "detect.by_pause",
            "detect.by_capture",
            "detect.reference_of_caller",
            "detect.reference_of_collector",
            "defer.garbage_collector",
        ),
        (Rule.TIMED_RESULT,),
    ),
    "remember.memo_returned": (Rule.TIMED_RESULT, Rule.ALIASED_OUTPUT),
    "remember.prepared_answer": (Rule.ALIASED_OUTPUT, Rule.WRONG_RESULT),
    "remember.prepared_copy": (Rule.WRONG_RESULT,),
    "defer.lazy_subclass": (Rule.UNREAL_OUTPUT,),
    "defer.lazy_methods": (Rule.UNREAL_OUTPUT,),
    "defer.thread_pool": (Rule.TIMED_RESULT, Rule.UNJOINED_WORK),
    "defer.native_pool": (Rule.TIMED_RESULT, Rule.UNJOINED_WORK),
    "defer.side_stream": (Rule.UNJOINED_WORK, Rule.EMPTY_GRAPH, Rule.HUNG),
    "defer.forked_stream": (Rule.UNJOINED_WORK,),
    "defer.absent_from_replay": (Rule.TIMED_RESULT, Rule.EMPTY_GRAPH),
    **dict.fromkeys(
        (
            "exact.zeros",
            "exact.not_a_number",
            "exact.unwritten",
            "exact.tf32_product",
            "exact.fp8_product",
            "exact.bfloat16_product",
            "exact.float16_product",
            "exact.narrow_result",
            "exact.quantised_weight",
            "columns.skips_one_tile",
            "columns.skips_last_column",
            "offset.expected_mean",
            "offset.half_the_mean",
            "residual.skips_the_branch",
            "sign.narrow_signs",
        ),
        (Rule.WRONG_RESULT,),
    ),
    "negate.zeroes_both": (Rule.WRITTEN_INPUT, Rule.WRONG_RESULT),
    "negate.lazy_negation": (Rule.ALIASED_OUTPUT, Rule.UNREAL_OUTPUT),
    "negate.negates_in_place": (Rule.WRITTEN_INPUT, Rule.ALIASED_OUTPUT),
    "repeat.expanded": (Rule.ALIASED_OUTPUT, Rule.UNREAL_OUTPUT),
    "repeat.expanded_copy": (Rule.UNREAL_OUTPUT,),
    "residual.returns_its_input": (Rule.ALIASED_OUTPUT, Rule.WRONG_RESULT),
    "residual.scrubs_its_input": (Rule.WRITTEN_INPUT,),
    "device.by_poison_on_device": (Rule.TIMED_RESULT,),
    "device.fingerprint_on_device": (Rule.TIMED_RESULT,),
    "device.every_fourth_call_on_device": (Rule.TIMED_RESULT,),
    "device.stale_pool": (Rule.EMPTY_GRAPH, Rule.TIMED_RESULT),
    "device.persisting_cache": (Rule.CHANGED_HARNESS,),
    "clock.patched_counter": (Rule.CHANGED_CLOCK,),
    "clock.patched_timer": (Rule.CHANGED_HARNESS,),
    "clock.patched_statistics": (Rule.CHANGED_HARNESS,),
    "clock.patched_event": (Rule.CHANGED_CLOCK,),
    "clock.patched_replay": (Rule.CHANGED_CLOCK,),
    "clock.slows_baseline": (Rule.CHANGED_BASELINE,),
    "clock.slows_torch": (Rule.CHANGED_BASELINE, Rule.CHANGED_HARNESS),
    "clock.holds_the_lock": (Rule.UNJOINED_WORK,),
    "clock.leaves_one_thread": (Rule.CHANGED_HARNESS,),
    "clock.leaves_settings": (Rule.CHANGED_HARNESS,),
    **dict.fromkeys(
        ("tamper.patched_checker", "tamper.replaced_exception", "tamper.patched_root", "tamper.patched_tensor"),
        (Rule.CHANGED_HARNESS,),
    ),
    **dict.fromkeys(("tamper.function_mode", "tamper.dispatch_mode"), (Rule.CHANGED_HARNESS,)),
    "tamper.patched_json": (Rule.CHANGED_BASELINE, Rule.CHANGED_HARNESS),
    "tamper.zeroed_reference": (Rule.TIMED_RESULT,),
    "tamper.poisoned_reference": (Rule.WRONG_RESULT,),
    "on_import.nothing": (Rule.CHANGED_HARNESS,),
}

#: Exploit to the rules that may disqualify it in one process on a GPU, where they differ from those on a CPU; as seen
#: on an H200 with torch 2.11.
ON_CUDA: dict[str, tuple[Rule, ...]] = {
    **dict.fromkeys(
        (
            "remember.memo_by_address",
            "remember.memo_returned",
            "remember.batch_and_skip",
            "remember.every_eighth_call",
            "remember.stale_memory",
            "detect.honest_for_check",
            "detect.by_offset",
            "detect.by_pause",
            "detect.reference_of_caller",
            "detect.reference_of_collector",
            "tamper.zeroed_reference",
        ),
        (Rule.EMPTY_GRAPH,),
    ),
    "defer.thread_pool": (Rule.UNJOINED_WORK, Rule.EMPTY_GRAPH),
    "defer.native_pool": (Rule.UNJOINED_WORK, Rule.EMPTY_GRAPH),
    "device.by_poison_on_device": (Rule.IMPOSSIBLE_TIME, Rule.TIMED_RESULT),
    "device.fingerprint_on_device": (Rule.WRONG_RESULT, Rule.TIMED_RESULT),
    "clock.leaves_settings": (Rule.WRONG_RESULT,),
    "tamper.restored_checker": (Rule.TIMED_RESULT,),
    "tamper.widened_tolerance": (Rule.IMPOSSIBLE_TIME,),
}

#: Exploits that a captured graph makes harmless: they are measured, and gain nothing.
HARMLESS_ON_CUDA = (
    "defer.garbage_collector",
    "detect.idle_for_timer",
    "detect.by_garbage_collection",
    "detect.rewrites_start",
    "detect.waits_in_short_runs",
    "clock.holds_the_lock",
)

#: Exploit to the reason why no rule disqualifies it in one process: it must end as "ok" there.
MISSED: dict[str, str] = {
    "detect.rewrites_start": "sets a local variable of the running timer; --isolated has a clock in another process",
    "detect.waits_in_short_runs": "as the one before; only --isolated has short runs",
    "clock.detoured_clock": "changes machine code below every clock of its process; --isolated has its own clock",
    "tamper.widened_tolerance": "changes the limits in the objects of suite and check",
    "tamper.restored_checker": "puts the comparison back before the harness looks for changes",
    "tamper.forged_reply": "writes the verdict itself; --isolated has the verdict in another process",
    "tamper.filtered_pipe": "rewrites the verdict on its way; --isolated has the verdict in another process",
    "softmax.softmax_without_maximum": "is right on every value that the suite draws; the suite must draw large ones",
}

#: Exploit that passes in one process to the rules that may disqualify it with ``--isolated``.
ISOLATED: dict[str, tuple[Rule, ...]] = {
    **dict.fromkeys(
        ("tamper.widened_tolerance", "tamper.restored_checker", "tamper.forged_reply"), (Rule.TIMED_RESULT,)
    ),
    "detect.waits_in_short_runs": (Rule.CONSTANT_TIME, Rule.UNCONFIRMED_TIME),
}

#: Exploit that computes a right result to the reason why its verdict with ``--isolated`` depends on the machine.
UNSURE: dict[str, str] = dict.fromkeys(
    ("detect.rewrites_start", "clock.detoured_clock", "tamper.filtered_pipe"),
    "only its time is false: it fails or loses its speedup, unless a busy CPU hides how much faster it claims to be",
)

#: Exploit that fails in one process on a CPU only if its work is late, which depends on the machine, with the reason.
RACES: dict[str, str] = {
    "defer.native_pool": "threads of torch's own pool do the work; Python does not list them, and on a fast CPU"
    " the work ends before the outputs are compared",
}
