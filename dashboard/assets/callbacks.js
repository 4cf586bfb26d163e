// Callbacks that need no answer from the server.
window.dash_clientside = Object.assign({}, window.dash_clientside, {
  lockstep: {
    title: (title) => {
      document.title = title || "Lockstep";
      return dash_clientside.no_update;
    },

    // The switch tells "light" before it knows; the page's attribute is right from the start.
    colours: (switched, known) => {
      const scheme = document.documentElement.getAttribute("data-mantine-color-scheme");
      return scheme === known ? dash_clientside.no_update : scheme;
    },

    // An address of one path whose query has one value a key; the last argument says which.
    address: (...given) => {
      const { path, keys } = given.pop();
      const query = keys
        .map((key, at) => [key, given[at]])
        .filter(([, value]) => value !== null && value !== undefined && value !== "")
        .map(([key, value]) => `${key}=${encodeURIComponent(value)}`);
      history.replaceState(history.state, "", query.length ? `${path}?${query.join("&")}` : path);
      return dash_clientside.no_update;
    },

    search: (text, options) => ({ ...options, quickFilterText: text || "" }),

    // replaceState, not dcc.Location: that one would build the page anew at every choice.
    permalink: (machine, cases, l2, quantities, variants, suite) => {
      const query = [
        ...(cases || []).map((one) => ["case", one]),
        ...(quantities || []).map((one) => ["quantity", one]),
        ...(variants || []).map((one) => ["variants", one]),
        ...(l2 ? [["l2", l2]] : []),
      ].map(([key, value]) => `${key}=${encodeURIComponent(value)}`);
      const path = `/family/${encodeURIComponent(machine)}/${encodeURIComponent(suite)}`;
      history.replaceState(history.state, "", `${path}?${query.join("&")}`);
      return dash_clientside.no_update;
    },
  },
});

// "/" goes to the search, as everywhere; j and k go through the rows, "a" acknowledges, "?" tells all that.
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, dialog[open]")) return;
  const row = (step) => {
    const rows = [...document.querySelectorAll("a.row")];
    const at = rows.indexOf(document.activeElement);
    rows[at < 0 ? 0 : Math.min(Math.max(at + step, 0), rows.length - 1)]?.focus();
  };
  const keys = {
    "/": () => document.querySelector("#overview-search, .search input, input.search")?.focus(),
    j: () => row(1),
    k: () => row(-1),
    a: () => document.getElementById("alert-ack")?.click(),
    "?": () => document.getElementById("help")?.showModal(),
  };
  if (!keys[event.key]) return;
  if (event.key === "/") event.preventDefault();
  keys[event.key]();
});
