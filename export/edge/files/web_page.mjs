// The page: checks the policy against its golden vectors, then lets it act, episode after episode.
//
// With ?steps=500 it plays one episode of that many steps as fast as it can, and says so in the element #episode.
import { Policy } from "./policy.mjs";
import { ENVIRONMENTS, seeded } from "./environments.mjs";

const at = (id) => document.getElementById(id);
const query = new URLSearchParams(location.search);
const fixedSteps = Number(query.get("steps")) || 0;
const random = seeded(Number(query.get("seed")) || Math.floor(Math.random() * 2 ** 32));

async function main() {
  const policy = await Policy.load();
  const { name, environment, precision } = policy.about;
  at("about").textContent = `A policy for ${environment}: raw observation in, action out, in this browser.`;
  await showGolden(policy);
  const known = ENVIRONMENTS[environment];
  if (!known) {
    at("episode").textContent = `${environment} itself does not run in a browser; ${name} in ${precision} does.`;
    return;
  }
  const world = new known.kind();
  at("scene").hidden = false;
  at("controls").hidden = fixedSteps > 0;
  if (fixedSteps) {
    await play(policy, world, fixedSteps, 0);
    return;
  }
  at("push").addEventListener("click", () => world.push(random));
  for (;;) {
    await play(policy, world, policy.about.steps ?? Infinity, known.fps);
    await pause(800);
  }
}

async function showGolden(policy) {
  const began = performance.now();
  const { count, worst, turned, passed } = await policy.replayGolden();
  const each = (1000 * (performance.now() - began)) / count;
  const choices = turned ? `, ${turned} choices between near equals fell the other way` : "";
  at("golden").textContent =
    `${passed ? "PASS" : "FAIL"}: ${count} golden vectors, off by at most ${rounded(worst)}` +
    ` where ${rounded(policy.about.tolerance)} is allowed${choices}.`;
  at("speed").textContent = each > 0 ? `${each.toFixed(0)} µs an action, here.` : "";
}

// One episode; fps 0 is as fast as it goes.
async function play(policy, world, limit, fps) {
  let stopped = false;
  at("again").onclick = () => { stopped = true; };
  world.reset(random);
  let total = 0;
  let steps = 0;
  let over = false;
  while (!over && !stopped && steps < limit) {
    const { reward, terminated } = world.step(await policy.act(world.observation()));
    total += reward;
    steps += 1;
    over = terminated;
    if (fps) {
      world.draw(at("scene"));
      at("episode").textContent = `step ${steps}, return ${total.toFixed(1)}`;
      await pause(at("slow").checked ? 1000 / fps : 0);
    }
  }
  world.draw(at("scene"));
  const end = over ? "ended by the environment" : "still going";
  at("episode").textContent = `${steps} steps, return ${total.toFixed(1)}, ${end}`;
}

const rounded = (value) => String(Number(value.toPrecision(3)));
const pause = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

main().catch((error) => {
  at("problem").hidden = false;
  at("problem").textContent = `This did not work: ${error.message ?? error}`;
});
