"use strict";
(() => {
  const EVERY_MS = 15000;

  // Ask for new facts, but never under the hands of a person: not while something in the part has
  // the focus or is selected, and not while nobody sees the page.
  setInterval(() => {
    const live = document.getElementById("live");
    const busy = live && (live.contains(document.activeElement) || !getSelection().isCollapsed);
    if (live && !busy && !document.hidden) live.dispatchEvent(new CustomEvent("refresh"));
  }, EVERY_MS);

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function draw(place) {
    const data = JSON.parse(place.dataset.chart);
    const line = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
    const scales = data.series.map((one) => one.label);
    place.replaceChildren();
    new uPlot(
      {
        width: place.clientWidth,
        height: 190,
        tzDate: (at) => uPlot.tzDate(new Date(at * 1e3), "UTC"),
        cursor: { drag: { x: false, y: false } },
        axes: [
          { ...line, values: [[86400, "{YYYY}-{MM}-{DD}"], [60, "{HH}:{mm}"], [1, "{HH}:{mm}:{ss}"]] },
          { ...line, scale: scales[0], size: 56, values: (_, at) => at.map((one) => `${one} s`) },
          { ...line, scale: scales[1], size: 64, side: 1, grid: { show: false } },
        ],
        scales: Object.fromEntries(scales.map((name) => [name, { range: (_, low, high) => [0, high || 1] }])),
        series: [
          { label: "began (UTC)", value: "{YYYY}-{MM}-{DD} {HH}:{mm}:{ss}" },
          { label: scales[0], scale: scales[0], stroke: colour("--s1"), width: 2, points: { show: true, size: 5 } },
          { label: scales[1], scale: scales[1], stroke: colour("--s3"), width: 1, dash: [4, 3], points: { show: false } },
        ],
      },
      [data.x, ...data.series.map((one) => one.values)],
      place,
    );
  }

  const drawAll = () => document.querySelectorAll("[data-chart]").forEach(draw);
  drawAll();
  document.addEventListener("htmx:afterSettle", drawAll);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  let waits;
  addEventListener("resize", () => { clearTimeout(waits); waits = setTimeout(drawAll, 150); });
})();
