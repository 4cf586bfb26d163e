// Callbacks that run in the browser, without a request.
window.dash_clientside = Object.assign({}, window.dash_clientside, {
  lockstep: {
    title: (title) => {
      document.title = title || "Lockstep";
      lockstepShown = { path: location.pathname, search: location.search };
      lockstepActed = false;
      // An alert's page belongs to the alerts. Pages below the overview have their own link back.
      const path = location.pathname.replace(/\/alert\/[^/]*$/, "/alerts");
      document.querySelectorAll(".pages a").forEach((link) => {
        if (link.getAttribute("href") === path) link.setAttribute("aria-current", "page");
        else link.removeAttribute("aria-current");
      });
      return dash_clientside.no_update;
    },

    // The switch reports "light" before it is ready; the page's attribute is correct from the start.
    colours: (switched, known) => {
      const scheme = document.documentElement.getAttribute("data-mantine-color-scheme");
      return scheme === known ? dash_clientside.no_update : scheme;
    },

    // Put the choices into the address, by their keys; a key may have several values. The last argument names the path and
    // the keys. Default values are left out.
    address: (...given) => {
      const { path, keys, usual = {} } = given.pop();
      const chosen = Object.fromEntries(keys.map((key, at) => [key, given[at]]).filter(([key, value]) => usual[key] !== value));
      return lockstepAddress(path, chosen);
    },

    // The address of this family's page on another machine, with the choices but without the zoom.
    onMachine: (machine) => {
      const parts = location.pathname.replace(/\/$/, "").split("/");
      if (decodeURIComponent(parts.at(-2)) === machine) return dash_clientside.no_update;
      parts[parts.length - 2] = encodeURIComponent(machine);
      const chosen = new URLSearchParams(location.search);
      chosen.delete("zoom");
      return [parts.join("/"), chosen.toString()].filter(Boolean).join("?");
    },

    // The time of the reader's visit before this session, by the server's clock; a reload does not count as a visit.
    visit: (now) => {
      if (sessionStorage.getItem("lockstep-since") === null) {
        sessionStorage.setItem("lockstep-since", localStorage.getItem("lockstep-visit") || "0");
        localStorage.setItem("lockstep-visit", String(now));
      }
      return Number(sessionStorage.getItem("lockstep-since"));
    },

    // Whether the screen has room for a page's controls above its charts; as in lockstep.css.
    wide: () => !matchMedia("(max-width: 640px)").matches,

    openRow: (clicked) => {
      const grid = dash_clientside.callback_context.triggered[0]?.prop_id.split(".")[0];
      const row = clicked && grid && dash_ag_grid.getApi(grid).getRowNode(clicked.rowId);
      return row?.data ? row.data.href : dash_clientside.no_update;
    },

    // The zoom of a trend for the address. Another axis resets it. The last argument is the old value.
    zoomed: (...given) => {
      const known = given.pop() || "";
      const [last] = dash_clientside.callback_context.triggered;
      if (!last || !last.value) return dash_clientside.no_update;
      const moved = last.value;
      const range = moved["xaxis.range"] || [moved["xaxis.range[0]"], moved["xaxis.range[1]"]];
      const whole = moved["xaxis.autorange"] || /axis\.value$/.test(last.prop_id);
      if (!whole && range[0] === undefined) return dash_clientside.no_update;
      const zoom = whole ? "" : range.map((end) => end.toFixed(2)).join(",");
      return zoom === known ? dash_clientside.no_update : zoom;
    },
  },
});

// Write a page's choices into the address. Not by dcc.Location, which would build the page again after every choice.
// Choices of one second, such as typed letters, are one step back. A choice that the page makes before the first click or
// key replaces the address.
let lockstepStep = 0;
let lockstepActed = false;
["pointerdown", "keydown"].forEach((kind) => window.addEventListener(kind, () => { lockstepActed = true; }, true));
function lockstepAddress(path, query) {
  const [page, ...kept] = path.split("?");
  const pairs = Object.entries(query).flatMap(([key, value]) => [value].flat().map((one) => [key, one]));
  const chosen = pairs.filter(([, value]) => value).map(([key, value]) => `${key}=${encodeURIComponent(value)}`);
  const address = [page, [...kept, ...chosen].join("&")].filter(Boolean).join("?");
  if (address === location.pathname + location.search) return dash_clientside.no_update;
  const begun = lockstepActed && location.pathname === page && Date.now() - lockstepStep > 1000;
  history[begun ? "pushState" : "replaceState"](history.state, "", address);
  lockstepStep = Date.now();
  lockstepShown.search = location.search;
  return dash_clientside.no_update;
}

// Back to other choices of the same page: dcc.Location builds a page only for another path. A link to a part of the page
// keeps the choices.
let lockstepShown = { path: location.pathname, search: location.search };
window.addEventListener("popstate", () => {
  if (location.pathname === lockstepShown.path && location.search !== lockstepShown.search) location.reload();
});

// What is typed into a menu replaces the menu's text.
document.addEventListener("click", ({ target }) => target.matches(".mantine-Select-input") && target.select());

// Show the list of keys after "?" or a click on its button.
function lockstepKeys() {
  const help = document.getElementById("help");
  if (help) help.open ? help.close() : help.showModal();
}
document.addEventListener("click", (event) => event.target.closest("#keys") && lockstepKeys());

// "/" moves to the search and Escape out of it, j and k through the rows; Enter opens a row, "a" acknowledges, "?" lists the keys.
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && event.target.closest(".filter input")) return event.target.blur();
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select")) return;
  if (event.key === "?") return lockstepKeys();
  if (event.target.closest("dialog[open]")) return;
  const name = document.getElementById("overview-grid") && "overview-grid";
  const row = (step) => {
    if (name) {
      const api = dash_ag_grid.getApi(name);
      const at = api.getFocusedCell();
      const next = at ? at.rowIndex + step : 0;
      if (next < 0 || next >= api.getDisplayedRowCount()) return;
      api.ensureIndexVisible(next);
      api.setFocusedCell(next, "family");
      return;
    }
    const rows = [...document.querySelectorAll(".table tbody tr")].map((one) => one.querySelector("a")).filter(Boolean);
    const at = rows.indexOf(document.activeElement);
    rows[at < 0 ? 0 : Math.min(Math.max(at + step, 0), rows.length - 1)]?.focus();
  };
  const open = () => {
    const at = name && dash_ag_grid.getApi(name).getFocusedCell();
    const shown = at && dash_ag_grid.getApi(name).getDisplayedRowAtIndex(at.rowIndex);
    if (shown?.data && event.target.closest(".ag-cell")) location.assign(shown.data.href);
  };
  const filter = () => {
    const field = document.querySelector(".filter input");
    field?.closest("details")?.setAttribute("open", "");
    field?.focus();
  };
  const keys = {
    "/": filter,
    j: () => row(1),
    k: () => row(-1),
    a: () => document.getElementById("alert-ack")?.click(),
    Enter: open,
  };
  if (!keys[event.key]) return;
  if (event.key === "/") event.preventDefault();
  keys[event.key]();
});
