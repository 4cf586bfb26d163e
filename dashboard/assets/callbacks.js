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

// "/" goes to the search, as everywhere.
document.addEventListener("keydown", (event) => {
  const search = document.getElementById("overview-search");
  if (event.key === "/" && search && !event.target.closest("input, textarea")) {
    event.preventDefault();
    search.focus();
  }
});
