// Format, sort and draw the cells of the overview's table.
(() => {
  const functions = (window.dashAgGridFunctions = window.dashAgGridFunctions || {});
  const components = (window.dashAgGridComponentFunctions = window.dashAgGridComponentFunctions || {});
  const make = (...parts) => window.React.createElement(...parts);
  // Same format as on the pages: a narrow space between thousands, and a typographic minus.
  const written = (format, value) => format.format(value).replaceAll(",", "\u202f").replace("-", "−");
  const decimals = [0, 1, 2].map((count) => new Intl.NumberFormat("en", { minimumFractionDigits: count, maximumFractionDigits: count, signDisplay: "negative" }));
  const digits = [1, 2, 3, 4].map((count) => new Intl.NumberFormat("en", { minimumSignificantDigits: count, maximumSignificantDigits: count }));
  const fixed = (value, count) => (value == null ? "–" : written(decimals[count], value));
  // Round to significant digits, but keep all digits before the point.
  const significant = (value, count) => (Math.abs(value) >= 10 ** count ? fixed(value, 0) : written(digits[count - 1], value));

  // Mantine's variables follow the colour scheme, and so does the table.
  functions.lockstepTheme = (base) =>
    base.withParams({
      backgroundColor: "var(--card)",
      foregroundColor: "var(--ink)",
      headerBackgroundColor: "var(--page)",
      headerTextColor: "var(--dim)",
      borderColor: "var(--line)",
      rowHoverColor: "var(--hover)",
      selectedRowBackgroundColor: "var(--hover)",
      browserColorScheme: "inherit",
      accentColor: "var(--accent)",
      chromeBackgroundColor: "var(--page)",
      menuBackgroundColor: "var(--card)",
      tooltipBackgroundColor: "var(--card)",
      tooltipTextColor: "var(--ink)",
      fontFamily: "inherit",
      fontSize: 13,
      headerFontSize: 12,
      headerFontWeight: 600,
      cellHorizontalPadding: 10,
      wrapperBorderRadius: 6,
      columnBorder: false,
    });

  functions.whole = (params) => fixed(params.value, 0);
  functions.three = ({ value }) => (value == null ? "–" : significant(value, 3));
  functions.hundredth = (params) => fixed(params.value, 2);
  functions.signed = ({ value }) => (value == null ? "" : (value > 0 ? "+" : "") + fixed(value, 1));
  // Four significant digits, so that the numbers of a column compare well; counts are integers.
  functions.general = ({ value }) => {
    if (value == null) return "–";
    return Number.isInteger(value) ? fixed(value, 0) : significant(value, 4);
  };
  functions.byShape = (one, other) => one.localeCompare(other, "en", { numeric: true });

  const phone = window.matchMedia("(max-width: 640px)").matches;
  functions.rowHeight = () => (phone ? 72 : 30);

  // What a table does once it has rows: on a phone, the first column holds variant and case, so that numbers are in view.
  const filled = new WeakSet();
  const fill = ({ api, eGridCell }) => {
    if (filled.has(api)) return;
    filled.add(api);
    const fold = () =>
      api.isDestroyed() || api.applyColumnState({
        state: [{ colId: "family", width: 168 }, { colId: "change", width: 84 }, ...["variant", "case"].map((colId) => ({ colId, hide: true }))],
      });
    if (phone) {
      setTimeout(fold);
      api.addEventListener("newColumnsLoaded", () => setTimeout(fold));
    }
    // AG Grid tells a screen reader that it is loading, and never that it has finished.
    const said = eGridCell.closest(".ag-root-wrapper").parentElement.querySelector("[aria-live]");
    setTimeout(() => api.isDestroyed() || (said.textContent = `${api.getDisplayedRowCount()} rows`), 1000);
  };

  components.SeriesLink = (props) => {
    setTimeout(() => fill(props));
    const shown = seriesLink(props);
    const { variant, case: shape } = props.data;
    return phone ? make("span", { className: "folded" }, shown, make("span", { className: "mono" }, [variant, shape].filter(Boolean).join(" "))) : shown;
  };

  const seriesLink = (props) =>
    make(
      "a",
      {
        href: props.data.href,
        className: "link",
        // The row handles a plain click, the browser one with a modifier key.
        onClick: (event) => {
          if (event.ctrlKey || event.metaKey || event.shiftKey) event.stopPropagation();
          else event.preventDefault();
        },
      },
      props.value
    );

  // ▲ faster than the baseline, ▼ slower, ● the interval contains 1.
  const verdict = (low, high) => (low == null ? "" : low > 1 ? "▲" : high < 1 ? "▼" : "●");

  components.Interval = (props) => {
    const field = props.colDef.field;
    if (props.value == null) return make("span", { className: "dim" }, "–");
    const low = props.data[`${field}_low`];
    const high = props.data[`${field}_high`];
    const sign = field === "speedup" && low !== high ? verdict(low, high) : "";
    const kind = { "▲": "faster", "▼": "slower" }[sign] || "dim";
    return make(
      "span",
      { title: low == null ? "no interval" : `interval ${significant(low, 4)} – ${significant(high, 4)}` },
      sign && make("span", { className: `sign ${kind}` }, sign),
      significant(props.value, field === "speedup" ? 3 : 4),
      field === "speedup" && low != null && low !== high && make("span", { className: "dim interval" }, `${significant(low, 3)}–${significant(high, 3)}`)
    );
  };

  components.Change = (props) => {
    const kind = { slower: "slower", worse: "slower", faster: "faster", better: "faster" }[props.data.verdict] || "dim";
    if (props.value == null) {
      const { verdict: called, commit, difference } = props.data;
      if (difference)
        return make("span", { className: kind, title: difference }, make("span", { className: "sign" }, props.data.sign), difference);
      const title = called === "not measured" ? `not measured since ${commit}` : called;
      return make("span", { className: "dim", title }, { new: "new", "not measured": "◌" }[called] || "–");
    }
    const { change_low: low, change_high: high } = props.data;
    const interval = low == null ? "" : `, interval ${fixed(low, 1)} … ${fixed(high, 1)} %`;
    const title = props.data.verdict + interval + (props.data.own_change == null ? "" : `. ${props.data.why}`);
    const text = (props.value > 0 ? "+" : "") + fixed(props.value, 1);
    return make("span", { className: kind, title }, make("span", { className: "sign" }, props.data.sign), text);
  };

  components.Floor = (props) =>
    props.value == null
      ? make("span", { className: "dim" }, "–")
      : make(
          "span",
          { className: "floor" },
          make("span", { className: "bar", style: { width: `${Math.min(props.value, 100) * 0.44}px` } }),
          make("span", null, fixed(props.value, 1))
        );

  components.State = (props) => {
    const sign = { failed: "✕ ", "no provenance": "◌ " }[props.value] || "";
    const kind = { failed: "failed", ok: "dim", "n/a": "dim" }[props.value] || "";
    return make("span", { className: kind }, sign + props.value);
  };

  // Save the table as it is filtered, with plain numbers. A spreadsheet would execute a text that begins like a formula.
  const plain = ({ value }) => (typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : value);
  document.addEventListener("click", (event) => {
    if (!event.target.closest("#overview-csv")) return;
    const api = dash_ag_grid.getApi("overview-grid");
    const fileName = `lockstep ${document.getElementById("overview-machine").value}.csv`;
    api.exportDataAsCsv({ fileName, allColumns: true, processCellCallback: plain });
  });

  // AG Grid draws only the rows in view, and draws others later than a browser prints. So paper gets a plain table.
  const onPaper = (grid) => {
    const api = dash_ag_grid.getApi(grid.id);
    // On a phone the first column holds variant and case.
    const drawn = (one) => one.isVisible() || (phone && ["variant", "case"].includes(one.getColId()));
    const columns = api.getColumns().filter(drawn);
    const text = (node, column) => {
      const { field, valueFormatter } = column.getColDef();
      const value = node.data[field];
      if (field === "change") return value == null ? node.data.verdict : `${node.data.sign} ${functions.signed({ value })}`;
      if (valueFormatter) return api.getCellValue({ rowNode: node, colKey: column, useFormatter: true });
      return typeof value === "number" ? functions.general({ value }) : value ?? "–";
    };
    const table = document.createElement("table");
    const row = (kind, texts) => {
      const line = document.createElement("tr");
      line.append(...texts.map((textContent) => Object.assign(document.createElement(kind), { textContent })));
      return line;
    };
    table.createTHead().append(row("th", columns.map((one) => one.getColDef().headerName)));
    api.forEachNodeAfterFilterAndSort((node) => node.data && table.append(row("td", columns.map((one) => text(node, one)))));
    const card = Object.assign(document.createElement("div"), { className: "card table plain on-paper" });
    card.append(table);
    grid.before(card);
  };
  window.addEventListener("beforeprint", () => document.querySelectorAll(".grid").forEach(onPaper));
  window.addEventListener("afterprint", () => document.querySelectorAll(".on-paper").forEach((one) => one.remove()));

  // A row that the server has not sent yet has no data.
  for (const [name, draw] of Object.entries(components)) components[name] = (props) => (props.data ? draw(props) : null);
})();
