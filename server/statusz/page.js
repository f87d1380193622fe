// Asks for /statusz.json once a second and shows it. Every number with a
// data-metric attribute is that sample of /metrics, as it is.
import {between, quantile, rate, sample, samples, value} from "./metrics.js";
import {bars, bytes, element, row, scaled, seconds, source, spark}
  from "./show.js";

const PERIOD_MS = 1000;
const KEPT = 120; // answers, two minutes
const NOW = 5;    // answers that "now" spans
const STAGES = ["receive", "queue", "upload", "kernel", "download", "send"];
const METHODS = ["Attend", "AttendStream", "ModelInfer"]; // that answer
const STAGE = "attendant_stage_duration_seconds";
const TOTAL = "attendant_request_duration_seconds";

const history = [];
let peakFlops = 0; // highest second seen
let paused = false;
let answers = 0;

const $ = (id) => document.getElementById(id);

function fill(id, nodes) {
  $(id).replaceChildren(...nodes);
}

// A table cell, or another element, with the sample's own number in it.
function number(name, status, family, labels, show) {
  const found = sample(status, family, labels);
  const look = name === "td" ? {class: "number"} : {};
  if (found === undefined) return element(name, "-", look);
  return element(name, show(found.value),
    {...look, ...source(family, found.labels, found.value)});
}

function card(title, shown, look = "card") {
  const made = element("div", "", {class: look});
  made.append(shown, element("span", title));
  return made;
}

function showHealth(status) {
  const why = status.why_not_live || status.why_not_ready;
  $("health").className = why ? "pill bad" : "pill good";
  const text = why || "ready";
  if ($("health").textContent !== text) $("health").textContent = text;
  const up = status.time_seconds - value(status, "process_start_time_seconds");
  $("build").textContent =
    `${status.version}, up ${scaled(Math.round(up), "s")}, ${status.build}`;
}

function showLoad(status, before) {
  const gauge = (title, family, labels = {}, show = scaled) =>
    card(title, number("b", status, family, labels, (v) => show(v, "")));
  const perSecond = (title, family, unit, step) =>
    card(title, element("b",
      scaled(rate(before, status, family), `${unit}/s`, step)));
  const flops = rate(before, status, "attendant_launched_flops_total");
  peakFlops = Math.max(peakFlops, flops);
  const known = value(status, "attendant_device_peak_flops");
  const ceiling = known ?? peakFlops;
  const share = ceiling > 0 ? (100 * flops / ceiling).toFixed(1) : "0.0";
  const name = known ? "the device's peak" : "the highest second seen here";
  fill("load-cards", [
    gauge("requests waiting", "attendant_queued_requests"),
    gauge("requests on the device", "attendant_running_requests"),
    gauge("bytes waiting", "attendant_queued_bytes", {}, bytes),
    gauge("work waiting (FLOP)", "attendant_queued_flops"),
    gauge("calls in flight", "attendant_requests_in_flight",
      {method: "Attend"}),
    gauge("streams in flight", "attendant_requests_in_flight",
      {method: "AttendStream"}),
    card("answers", element("b", scaled(answered(before, status), "/s"))),
    perSecond("received", "attendant_received_bytes_total", "B", 1024),
    perSecond("sent", "attendant_sent_bytes_total", "B", 1024),
    card(`${share} % of ${name}, ${scaled(ceiling, "FLOP/s")}`,
      element("b", scaled(flops, "FLOP/s"), {id: "flops"}), "card wide"),
    gauge("launches", "attendant_launches_total"),
    gauge("repairs", "attendant_repairs_total"),
  ]);
  const finished = samples(status, "attendant_requests_finished_total")
    .filter((s) => s.value > 0);
  fill("calls", finished.map(({labels, value: v}) => row([
    labels.method, labels.code,
    element("td", String(v), {class: "number",
      ...source("attendant_requests_finished_total", labels, v)})])));
}

// Who calls, where a policy tells callers apart.
function showCallers(status) {
  const found = samples(status, "attendant_identity_requests_total");
  $("callers").hidden = found.length === 0;
  fill("caller-rows", found.map(({labels, value: v}) => row([
    labels.identity, labels.result,
    element("td", String(v), {class: "number",
      ...source("attendant_identity_requests_total", labels, v)})])));
}

function answered(before, now) {
  return METHODS.reduce((sum, method) => sum + rate(before, now,
    "attendant_requests_finished_total", {method, code: "OK"}), 0);
}

function showStages(status) {
  const before = history[Math.max(0, history.length - 1 - NOW)];
  const rows = [...STAGES.map((stage) => [stage, STAGE, {stage}]),
    ["total", TOTAL, {}]];
  fill("stage-rows", rows.map(([title, family, labels]) => {
    const now = sample(status, family, labels);
    const recent = between(sample(before, family, labels), now);
    const means = history.map((answer, i) => {
      const last = i > 0 ? sample(history[i - 1], family, labels) : undefined;
      const grown = last && between(last, sample(answer, family, labels));
      return grown?.count ? grown.sum / grown.count : NaN;
    });
    const mean = recent.count ? recent.sum / recent.count : NaN;
    const most = Math.max(...means.filter(Number.isFinite), 0);
    const label = `${title}: now ${seconds(mean)}, most ${seconds(most)}`;
    const upTo = quantile(recent, 0.95);
    return row([title, spark(means, KEPT, label),
      element("td", seconds(mean), {class: "number"}),
      element("td", Number.isNaN(upTo) ? "-" : `≤ ${seconds(upTo)}`,
        {class: "number"}),
      element("td", now.sum.toPrecision(4), {class: "number",
        ...source(`${family}_sum`, labels, now.sum)}),
      element("td", String(now.count), {class: "number",
        ...source(`${family}_count`, labels, now.count)})]);
  }));
}

function showBatches(status) {
  for (const [id, family] of [["batch-requests", "attendant_batch_requests"],
    ["batch-tokens", "attendant_batch_tokens"]]) {
    const all = between(undefined, sample(status, family));
    const rows = all.buckets.filter(([, count]) => count > 0)
      .map(([bound, count]) =>
        [bound === Infinity ? "more" : `≤ ${scaled(bound, "", 1024)}`, count]);
    const mean = all.count ? (all.sum / all.count).toFixed(1) : "none yet";
    const text = element("p", `mean ${mean} over `);
    text.append(element("b", String(all.count),
      source(`${family}_count`, {}, all.count)), " answers");
    fill(id, [text, bars(rows, rows.map(([name, count]) =>
      `${name}: ${count}`).join(", ") || "no answers yet")]);
  }
}

function showMemory(status) {
  const DEVICE = "attendant_device_memory_bytes";
  const rows = [];
  const add = (where, kind, family, labels, whole) => {
    const v = value(status, family, labels);
    if (v === undefined) return;
    const share = whole > 0
      ? element("meter", `${(100 * v / whole).toFixed(0)} %`,
        {min: 0, max: whole, value: v, "aria-label": `${where} ${kind}`})
      : "";
    rows.push(row([where, kind,
      number("td", status, family, labels, bytes), share]));
  };
  const capacity = value(status, "attendant_host_pool_capacity_bytes");
  add("host pool", "capacity", "attendant_host_pool_capacity_bytes", {});
  add("host pool", "used", "attendant_host_pool_used_bytes", {}, capacity);
  for (const {labels} of samples(status, DEVICE)) {
    const reserved = value(status, DEVICE, {...labels, kind: "reserved"});
    add(labels.device, labels.kind, DEVICE, labels,
      labels.kind === "reserved" ? 0 : reserved);
  }
  for (const {labels} of samples(status, "attendant_region_bytes")) {
    add("tensor regions", Object.values(labels).join(" "),
      "attendant_region_bytes", labels);
  }
  add("process", "resident", "process_resident_memory_bytes", {});
  fill("memory-rows", rows);
}

function showDevice(status) {
  const parts = Object.entries(status.device).flatMap(([name, v]) =>
    [element("dt", name.replaceAll("_", " ")), element("dd", String(v))]);
  for (const [family, found] of Object.entries(status.metrics)) {
    if (!family.startsWith("attendant_gpu_")) continue;
    for (const {labels, value: v} of found) {
      parts.push(element("dt", family.slice(14).replaceAll("_", " ")),
        element("dd", String(v), source(family, labels, v)));
    }
  }
  fill("device", parts);
}

function showErrors(status) {
  fill("error-rows", status.errors.length === 0
    ? [row(["none", "", "", "", ""])]
    : status.errors.map((e) =>
      row([e.time, e.request_id || "(none)", e.code, e.stage, e.message])));
}

function showFlags(status) {
  fill("flags", status.flags.map((flag) => {
    const made = row([`--${flag.name}`, flag.value || "(empty)",
      flag.initial || "(empty)"]);
    if (flag.value !== flag.initial) made.className = "changed";
    return made;
  }));
}

function show(status) {
  if (history.length === 0) showFlags(status);
  const before = history.at(-1) ?? status;
  history.push(status);
  if (history.length > KEPT) history.shift();
  showHealth(status);
  showLoad(status, before);
  showCallers(status);
  showStages(status);
  showBatches(status);
  showMemory(status);
  showDevice(status);
  showErrors(status);
  $("updated").textContent = `updated ${status.time}`;
  document.body.dataset.answers = ++answers;
}

async function poll() {
  try {
    const answer = await fetch("statusz.json", {cache: "no-store"});
    if (!answer.ok) throw new Error(`HTTP ${answer.status}`);
    show(await answer.json());
  } catch (error) {
    $("health").className = "pill bad";
    $("health").textContent = "no answer from the server";
    document.body.dataset.failure = String(error);
  }
}

async function follow() {
  if (!paused) await poll();
  setTimeout(follow, PERIOD_MS);
}

$("pause").addEventListener("click", () => {
  paused = !paused;
  $("pause").setAttribute("aria-pressed", String(paused));
  $("pause").textContent = paused ? "Go on" : "Pause";
});
follow();
