// Keep the open page up to date: poll for new results, and say what failed and what to do.
(() => {
  const POLL_MS = 15_000;
  const SOON_MS = 1_000;
  // What failed: by output of a callback that fills a part, or "poll", or "act" for what the reader did, or "trouble"
  // for what is shown although it may be old.
  const failures = new Map();
  // The version that the page shows; undefined if a part of the page failed and must be requested again.
  let shown;
  let polls = false;

  const say = () => {
    const [text] = failures.values();
    const place = document.getElementById("failed");
    document.body.classList.toggle("failing", text !== undefined);
    if (!place) return;
    place.hidden = text === undefined;
    if (text !== undefined && place.textContent !== text) place.textContent = text;
  };
  const AGAIN = { poll: "This page asks again by itself.", act: "Try it again.", page: "Load this page again." };
  const reason = async (answer) => {
    if (!(answer instanceof Response)) return "The server does not answer. Start it again with: lockstep dashboard.";
    const plain = (answer.headers.get("Content-Type") || "").startsWith("text/plain");
    return (plain && (await answer.clone().text()).trim()) || `The server answered with the error ${answer.status}.`;
  };

  const fail = async (what, answer, then = AGAIN.poll) => {
    const text = `${await reason(answer)} ${answer.status === 400 ? AGAIN.page : then}`;
    failures.delete(what);
    failures.set(what, text);
    if (what !== "act") shown = undefined;
    say();
  };
  const poll = async () => {
    let wait = POLL_MS;
    const { requests_pathname_prefix: prefix } = JSON.parse(document.getElementById("_dash-config").textContent);
    try {
      const answer = await fetch(`${prefix}_live`, { cache: "no-store" });
      if (!answer.ok) await fail("poll", answer);
      else {
        const { version, soon, trouble } = await answer.json();
        if (trouble) failures.set("trouble", trouble);
        if (trouble || failures.delete("trouble")) say();
        // The browser drops a part that is still loading if the part's input changes. Wait for the part.
        const loading = document.querySelector("[data-dash-is-loading]");
        if (soon || loading) wait = SOON_MS;
        if (!loading && version !== shown) dash_clientside.set_props("version", { data: version });
        if (failures.delete("poll")) say();
      }
    } catch (error) {
      await fail("poll", error);
    }
    setTimeout(poll, wait);
  };

  // Dash calls this after each callback that the server answered or failed to answer.
  window.lockstepAnswered = ({ output, inputs }, { error } = {}) => {
    const whole = output.includes("page.children");
    const what = whole || inputs.some(({ id }) => id === "version") ? output : "act";
    if (error) return fail(what, error, whole ? AGAIN.page : what === "act" ? AGAIN.act : AGAIN.poll);
    if (whole) failures.clear();
    failures.delete("act");
    failures.delete(what);
    say();
  };

  window.dash_clientside = Object.assign({}, window.dash_clientside, {
    live: {
      // The page shows this version.
      shown: (version) => {
        shown = version;
        if (!polls && version) {
          polls = true;
          setTimeout(poll, SOON_MS);
        }
      },
    },
  });
})();
