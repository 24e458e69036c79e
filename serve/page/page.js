import { bars, element, lines, round } from "./charts.js";
import { fallen, fresh, step } from "./cartpole.js";
import { WORDS } from "./words.js";

const POINTS = 60, STAGES = ["parse", "queue", "infer", "encode"];
const COLOURS = ["var(--violet)", "var(--amber)", "var(--blue)", "var(--green)"];
const EDGES = ["½", "1", "1½", "2", "3", "4", "6", "8", "12", "20", "50", ">"];
const find = (id) => document.getElementById(id);
const words = () => WORDS[document.documentElement.lang === "zh" ? "zh" : "en"];
const history = { rate: [], stages: STAGES.map(() => []) };
let policies = [], known = [], before = null, playing = null, best = 0;

// --- talking to the server

async function ask(path, options = {}) {
  const token = sessionStorage.getItem("token");
  const headers = { ...(token ? { Authorization: `Bearer ${token}` } : {}), ...options.headers };
  const answer = await fetch(path, { ...options, headers });
  if (answer.status === 401) find("door").hidden = false;
  const content = await answer.json();
  if (!answer.ok) throw new Error(content.error ?? answer.statusText);
  return content;
}

const act = (name, content) =>
  ask(`/v1/policies/${encodeURIComponent(name)}/act`, { method: "POST", body: JSON.stringify(content) });

// --- the tables

function cell(row, text, kind) {
  const made = row.insertCell();
  made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

async function showVersions(counts) {
  const [listing, index] = await Promise.all([ask("/v1/policies"), ask("/v2/repository/index", { method: "POST" })]);
  policies = listing.policies;
  const splits = await Promise.all(policies.map((one) => ask(`/v1/policies/${encodeURIComponent(one.name)}`)));
  const body = document.createElement("tbody");
  for (const { name, version, state, reason } of index) {
    const acting = policies.find((one) => one.name === name);
    const split = splits.find((one) => one.name === name)?.split;
    const acts = acting && String(acting.version) === version;
    const row = body.insertRow();
    cell(row, name);
    cell(row, version);
    if (state !== "READY") {
      cell(row, words().refused, "bad");
      cell(row, reason, "reason").colSpan = 4;
      continue;
    }
    const role = split && String(split.version) === version ? `${words()[split.kind]} ${split.share * 100} %` : words().open;
    cell(row, acts ? words().acting : role, acts ? "good" : "plain");
    cell(row, acting?.precision ?? "");
    cell(row, acting?.provider.replace("ExecutionProvider", "") ?? "");
    const measured = acts ? acting.measured_return : null;
    cell(row, measured ? `${round(measured.mean)} ± ${round(measured.std)}` : "–");
    const requests = counts.policies[`${name}/${version}`]?.requests ?? {};
    cell(row, Object.values(requests).reduce((sum, one) => sum + one, 0).toLocaleString("en"));
  }
  body.id = "versions";
  find("versions").replaceWith(body);
  offerPolicies();
}

function showFeatures(drift) {
  const body = document.createElement("tbody");
  body.id = "features";
  drift.features.slice(0, 32).forEach((name, i) => {
    const row = body.insertRow(), n = Math.max(1, drift.observations);
    const mean = drift.score_sum[i] / n, spread = Math.sqrt(Math.max(0, drift.score_squares[i] / n - mean * mean));
    cell(row, name);
    cell(row, `${round(mean)} σ`, Math.abs(mean) > 2 ? "bad" : Math.abs(mean) > 1 ? "warn" : "");
    cell(row, `${round(spread)} σ`);
    cell(row, `${round(drift.most[i])} σ`, drift.most[i] > 4 ? "warn" : "");
  });
  find("features").replaceWith(body);
}

// --- the charts

function push(list, value) {
  list.push(value);
  if (list.length > POINTS) list.shift();
}

function totals(counts) {
  const all = Object.values(counts.policies);
  const sum = (one) => all.reduce((total, policy) => total + one(policy), 0);
  return {
    requests: sum((policy) => Object.values(policy.requests).reduce((a, b) => a + b, 0)),
    answered: sum((policy) => policy.batch.counts.reduce((a, b) => a + b, 0)),
    stages: STAGES.map((stage) => sum((policy) => policy[stage].sum)),
    time: performance.now() / 1000,
  };
}

function chosenCounts(counts) {
  const policy = policies.find((one) => one.name === find("policy").value);
  return policy && counts.policies[`${policy.name}/${policy.version}`];
}

function showCharts(counts) {
  const now = totals(counts);
  if (before) {
    const answered = Math.max(1, now.answered - before.answered);
    push(history.rate, Math.max(0, now.requests - before.requests) / Math.max(0.1, now.time - before.time));
    STAGES.forEach((_, i) => push(history.stages[i], ((now.stages[i] - before.stages[i]) / answered) * 1e6));
  }
  before = now;
  lines(find("rate"), [{ values: history.rate, colour: "var(--blue)" }], words().rate);
  lines(find("latency"), history.stages.map((values, i) => ({ values, colour: COLOURS[i] })), words().latency);
  const legend = STAGES.map((stage, i) => {
    const made = document.createElement("span");
    const mark = element("svg", { width: 12, height: 12, class: "mark" });
    mark.append(element("rect", { width: 12, height: 12, fill: COLOURS[i], rx: 2 }));
    made.append(mark, ` ${words()[stage]}`);
    return made;
  });
  find("stages").replaceChildren(...legend);
  const drift = chosenCounts(counts)?.drift;
  const policy = policies.find((one) => one.name === find("policy").value);
  const actions = drift?.actions?.[0] ?? [];
  bars(find("actions"), actions, actions.map((_, i) => actionName(policy, i)), words().actions, "var(--green)");
  bars(find("distance"), drift?.distance ?? [], EDGES.map((edge) => (edge === ">" ? ">50" : edge)), words().distance, "var(--amber)");
  if (drift) showFeatures(drift);
}

function actionName(policy, index) {
  const space = policy?.action_space;
  if (space?.type === "discrete") return space.names?.[index] ?? String(index + space.start);
  return space?.type === "box" ? `${index * 10}%` : String(index);
}

// --- the form

function offerPolicies() {
  const names = policies.map((one) => one.name);
  if (names.join() === known.join()) return;
  known = names;
  const select = find("policy"), chosen = select.value;
  select.replaceChildren(...names.map((name) => new Option(name, name)));
  if (names.includes(chosen)) select.value = chosen;
  suggest();
}

function suggest() {
  const policy = policies.find((one) => one.name === find("policy").value);
  if (policy) find("observation").value = JSON.stringify(example(policy.observation_space), null, 1);
}

function example(space) {
  if (space.type === "dict") return Object.fromEntries(Object.entries(space.spaces).map(([key, part]) => [key, example(part)]));
  if (space.type === "tuple") return space.spaces.map(example);
  if (space.type === "discrete") return space.start;
  if (space.type === "multi_discrete") return space.nvec.map((_, i) => space.start[i] ?? 0);
  if (space.type === "box" && space.names.length) return Object.fromEntries(space.names.map((name) => [name, 0]));
  const zeros = (shape) => (shape.length ? Array.from({ length: shape[0] }, () => zeros(shape.slice(1))) : 0);
  return zeros(space.shape);
}

async function answerForm(event) {
  event.preventDefault();
  const policy = policies.find((one) => one.name === find("policy").value), into = find("answer");
  try {
    const wanted = ["value", "probabilities", "q_values"].filter((name) =>
      policy.outputs.includes(name === "probabilities" ? "logits" : name));
    const content = { observation: JSON.parse(find("observation").value), return: wanted };
    if (find("draw").checked) content.deterministic = false;
    showAnswer(into, policy, await act(policy.name, content));
  } catch (error) {
    into.replaceChildren(paragraph(`${words().failed}: ${error.message}`, "bad"));
  }
}

function showAnswer(into, policy, answer) {
  const name = typeof answer.action === "number" ? actionName(policy, answer.action - (policy.action_space.start ?? 0)) : null;
  const said = JSON.stringify(answer.action) + (name && name !== String(answer.action) ? ` (${name})` : "");
  const first = paragraph(`${words().action}: `), strong = document.createElement("b");
  strong.textContent = said;
  first.append(strong);
  into.replaceChildren(first);
  if (answer.value !== undefined) into.append(paragraph(`${words().value}: ${round(answer.value)}`));
  const shown = answer.probabilities ?? answer.q_values ?? [];
  shown.forEach((number, i) => into.append(bar(actionName(policy, i), number, Boolean(answer.probabilities))));
}

function bar(name, number, isProbability) {
  const made = document.createElement("div"), label = document.createElement("span"), text = document.createElement("span");
  made.className = "bar";
  label.textContent = name;
  text.textContent = round(number);
  const meter = document.createElement("meter");
  meter.value = isProbability ? number : 0;
  meter.setAttribute("aria-label", `${words().probability} ${name}`);
  made.append(label, isProbability ? meter : document.createElement("span"), text);
  return made;
}

function paragraph(text, kind) {
  const made = document.createElement("p");
  made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

// --- the game

function drawCart([x, , angle]) {
  const cart = find("cart"), tip = [x + Math.sin(angle), -0.15 - Math.cos(angle)];
  cart.setAttribute("aria-label", `CartPole, x ${x.toFixed(2)}`);
  cart.replaceChildren(
    element("line", { x1: -2.4, x2: 2.4, y1: 0.12, y2: 0.12, stroke: "var(--soft)", "stroke-width": 0.03 }),
    element("rect", { x: x - 0.3, y: -0.15, width: 0.6, height: 0.27, rx: 0.05, fill: "var(--blue)" }),
    element("line", { x1: x, y1: -0.15, x2: tip[0], y2: tip[1], stroke: "var(--amber)", "stroke-width": 0.09, "stroke-linecap": "round" }),
  );
}

async function play(policy, signal) {
  let state = fresh(), steps = 0;
  while (!signal.aborted) {
    try {
      state = step(state, (await act(policy.name, { observation: state })).action - policy.action_space.start);
    } catch (error) {
      find("score").textContent = `${words().failed}: ${error.message}`;
      return stopPlaying();
    }
    steps += 1;
    best = Math.max(best, steps);
    drawCart(state);
    find("score").textContent = `${steps} ${words().steps} ${best}`;
    if (fallen(state) || steps >= 500) [state, steps] = [fresh(), 0];
    await new Promise((done) => setTimeout(done, 20));
  }
}

function togglePlaying() {
  if (playing) return stopPlaying();
  const policy = policies.find((one) => one.name === find("policy").value);
  const fits = policy?.observation_space.shape?.join() === "4" && policy.action_space.n === 2;
  if (!fits) return void (find("score").textContent = words().unfit);
  playing = new AbortController();
  find("run").textContent = words().stop;
  play(policy, playing.signal);
}

function stopPlaying() {
  playing?.abort();
  playing = null;
  find("run").textContent = words().start;
}

// --- the page itself

function speak(language) {
  document.documentElement.lang = language;
  localStorage.setItem("language", language);
  for (const one of document.querySelectorAll("[data-word]")) one.textContent = words()[one.dataset.word];
  find("language").textContent = language === "zh" ? "English" : "中文";
  find("language").lang = language === "zh" ? "en" : "zh";
  if (playing) find("run").textContent = words().stop;
}

function dress(theme) {
  document.documentElement.dataset.theme = theme;
  localStorage.setItem("theme", theme);
}

async function refresh() {
  try {
    const gathered = await ask("/v1/statistics");
    await showVersions(gathered.counts);
    showCharts(gathered.counts);
    find("status").textContent = `${gathered.workers} ${words().workers}`;
    find("status").className = "";
    find("door").hidden = true;
  } catch (error) {
    find("status").textContent = `${words().lost}: ${error.message}`;
    find("status").className = "bad";
  }
  setTimeout(refresh, document.hidden ? 5000 : 1000);
}

speak(localStorage.getItem("language") ?? (navigator.language.startsWith("zh") ? "zh" : "en"));
if (localStorage.getItem("theme")) dress(localStorage.getItem("theme"));
find("language").addEventListener("click", () => speak(document.documentElement.lang === "zh" ? "en" : "zh"));
find("theme").addEventListener("click", () => {
  const dark = document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  dress(dark === "dark" ? "light" : "dark");
});
find("door").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("token", find("token").value);
  refresh();
});
find("policy").addEventListener("change", suggest);
find("ask").addEventListener("submit", answerForm);
find("run").addEventListener("click", togglePlaying);
drawCart([0, 0, 0.05, 0]);
refresh();
