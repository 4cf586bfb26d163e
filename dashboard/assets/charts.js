// Export charts: as files, by the buttons in their corner, and on paper.
(() => {
  // On paper and in a file a chart needs its own title and legend.
  const alone = (plot, label) => ({
    data: plot.data.map((trace) => ({ ...trace, showlegend: Boolean(trace.name) })),
    layout: {
      ...plot.layout,
      title: {
        text: label.replace(/[<&]/g, ""),
        font: { size: 13 },
        x: 0.02,
        xanchor: "left",
        y: 0.98,
        yanchor: "top",
        subtitle: { text: ["Lockstep", plot.layout.meta].filter(Boolean).join(" · ").replace(/[<&]/g, ""), font: { size: 11 } },
      },
      margin: { ...plot.layout.margin, t: 84 },
      showlegend: true,
      legend: { orientation: "h", y: 1, yanchor: "bottom", x: 0 },
      paper_bgcolor: getComputedStyle(plot.closest(".card") || document.body).backgroundColor,
    },
  });

  const approached = (event) => {
    const box = event.target.closest && event.target.closest(".graph");
    if (!box || box.querySelector(":scope > .saves")) return;
    const corner = document.createElement("div");
    corner.className = "saves";
    for (const kind of ["SVG", "PNG"]) {
      const button = document.createElement("button");
      button.type = "button";
      button.dataset.save = kind.toLowerCase();
      button.textContent = kind;
      button.setAttribute("aria-label", `Save the chart as ${kind}`);
      corner.append(button);
    }
    box.append(corner);
  };
  document.addEventListener("pointerover", approached);
  document.addEventListener("focusin", approached);

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-save]");
    const box = button && button.closest(".graph");
    const plot = box && box.querySelector(".js-plotly-plot");
    if (!plot) return;
    const label = box.getAttribute("aria-label");
    const name = `lockstep ${document.title.split(" · ")[0]} ${label}`.toLowerCase().replace(/[^a-z0-9.]+/g, "-");
    const { width, height } = plot.getBoundingClientRect();
    Plotly.downloadImage(alone(plot, label), { format: button.dataset.save, filename: name, width, height: height + 80, scale: 2 });
  });

  // Paper is narrower than the screen. Widths on A4 in pixels.
  const [HALF, WHOLE] = [480, 990];
  window.addEventListener("beforeprint", () => {
    document.querySelectorAll(".js-plotly-plot").forEach((plot) => Plotly.relayout(plot, { width: plot.closest(".charts") && plot.closest(".card").clientWidth < WHOLE * 0.7 ? HALF : WHOLE, autosize: false }));
  });
  window.addEventListener("afterprint", () => {
    document.querySelectorAll(".js-plotly-plot").forEach((plot) => Plotly.relayout(plot, { width: null, autosize: true }));
  });
})();
