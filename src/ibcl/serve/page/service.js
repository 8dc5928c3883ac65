"use strict";
// Answers from the service: asked whenever the preference changes, looked at for new versions.

const POLL_MILLISECONDS = 1500;
const ATTEMPTS = 4;

let token = sessionStorage.getItem("token") ?? "";

const pause = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

async function ask(method, path, body) {
  const headers = {};
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (token) headers.Authorization = `Bearer ${token}`;
  for (let attempt = 1; ; attempt++) {
    const response = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
    if (response.ok) return response;
    if (response.status === 401) byId("token-form").hidden = false;
    const again = Number(response.headers.get("Retry-After"));
    if (response.status === 429 && again > 0 && attempt < ATTEMPTS) {
      await pause(1000 * again);
      continue;
    }
    const answer = await response.json().catch(() => ({}));
    throw new Error(answer.error ?? `The service answered with status ${response.status}.`);
  }
}

const get = async (path) => (await ask("GET", path)).json();
const post = async (path, body) => (await ask("POST", path, body)).json();

const source = {
  async overview() {
    const overview = await get("/v1/explorer");
    return { ...overview, versions: (await get("/v1/versions")).versions };
  },
  measure: (preference, version) => post("/v1/explorer/measure", { preference, version }),
  front: (first, second, version) => get(`/v1/explorer/front?${new URLSearchParams({ first, second, version })}`),
  predict: (body) => post("/v1/predict", body),
  infer: (rows, labels) => post("/v1/infer", { rows, labels }),
  model: async (body) => (await ask("POST", "/v1/model", body)).blob(),
  remark: (milliseconds) => `Weighted by this preference; made and measured in ${milliseconds.toFixed(0)} ms.`,
  nothing(place) {
    place.textContent = "Start the service with --validation to see how good the model is on every task.";
  },
  loaded(before) {
    const overview = explorer.overview;
    byId("token-form").hidden = true;
    byId("name").textContent = overview.knowledge_base;
    byId("task-count").textContent = `${overview.tasks.length} task${overview.tasks.length === 1 ? "" : "s"}`;
    byId("version").textContent = `version ${overview.version.slice(0, 8)}`;
    inputs.loaded(before);
  },
  also: () => inputs.also(),
};

const explorer = new Explorer(source);
const inputs = new Inputs(explorer);

let away = false, stale = false;

async function look() {
  try {
    const { version } = await get("/ready");
    if (away) say("");
    away = false;
    if (stale || version !== explorer.overview?.version) {
      stale = false;
      const before = await explorer.load();
      if (before && before.version !== version) sayWhatChanged(before.tasks, explorer.overview.tasks);
    }
  } catch (error) {
    away = true;
    say(error instanceof TypeError ? "The service does not answer; trying again." : error.message, true);
  }
  setTimeout(look, POLL_MILLISECONDS);
}

function sayWhatChanged(before, tasks) {
  const learnt = tasks.filter((task) => !before.includes(task));
  const gone = before.filter((task) => !tasks.includes(task));
  say(learnt.length ? `The knowledge base has learnt ${learnt.join(", ")}; it starts with no weight.`
    : gone.length ? `The knowledge base no longer knows ${gone.join(", ")}.` : "The knowledge base has changed.");
}

byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const typedToken = byId("token").value.trim();
  if (!/^[!-~]+$/.test(typedToken)) {
    say("That is no token: it has letters, digits, - and _ only.", true);
    return;
  }
  token = typedToken;
  sessionStorage.setItem("token", token);
  say("");
  stale = true;
});
look();
