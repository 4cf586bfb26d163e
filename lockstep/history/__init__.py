"""Read the asv results of Lockstep or of any other project, and answer queries about them.

``Store`` keeps a columnar cache of the result files up to date. ``Results`` is a snapshot of the store and answers
queries. ``model`` defines the data classes. This package does not judge whether a number is good or bad.

    results = Store.open(Path("results")).current()
    for trend in results.trends(results.series(machine="h200-locked@1500", family="linear")):
        ...
"""
