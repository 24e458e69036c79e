// Gymnasium's classic-control environments: the same equations, constants and limits, in float64 as there.
// Each has reset(random) with `random` in [0, 1), step(action) → {reward, terminated}, observation() and draw(canvas).

const between = (random, low, high) => low + (high - low) * random();
const clip = (value, low, high) => Math.min(Math.max(value, low), high);

class CartPole {
  reset(random) {
    this.state = Array.from({ length: 4 }, () => between(random, -0.05, 0.05));
  }

  step(action) {
    const [gravity, massCart, massPole, length, force, tau] = [9.8, 1.0, 0.1, 0.5, 10.0, 0.02];
    const total = massCart + massPole;
    const poleMassLength = massPole * length;
    let [x, speed, angle, turning] = this.state;
    const push = action === 1 ? force : -force;
    const [cos, sin] = [Math.cos(angle), Math.sin(angle)];
    const temp = (push + poleMassLength * turning ** 2 * sin) / total;
    const turn = (gravity * sin - cos * temp) / (length * (4.0 / 3.0 - (massPole * cos ** 2) / total));
    const acceleration = temp - (poleMassLength * turn * cos) / total;
    x += tau * speed;
    speed += tau * acceleration;
    angle += tau * turning;
    turning += tau * turn;
    this.state = [x, speed, angle, turning];
    return { reward: 1, terminated: Math.abs(x) > 2.4 || Math.abs(angle) > (12 * 2 * Math.PI) / 360 };
  }

  observation() {
    return this.state;
  }

  push(random) {
    this.state[3] += random() < 0.5 ? -0.6 : 0.6;
  }

  draw(canvas) {
    const pen = fresh(canvas);
    const scale = canvas.width / 5.6;
    const [x, y] = [canvas.width / 2 + this.state[0] * scale, canvas.height * 0.72];
    line(pen, 0, y + 18, canvas.width, y + 18, 2, "#999");
    pen.fillStyle = "#2b3a67";
    pen.fillRect(x - 38, y - 12, 76, 30);
    line(pen, x, y - 12, x + Math.sin(this.state[2]) * 2 * scale, y - 12 - Math.cos(this.state[2]) * 2 * scale, 11, "#c8862d");
    dot(pen, x, y - 12, 7, "#7d8ca3");
  }
}

class Pendulum {
  reset(random) {
    this.angle = between(random, -Math.PI, Math.PI);
    this.turning = between(random, -1, 1);
    this.torque = 0;
  }

  step(action) {
    const [gravity, mass, length, dt] = [10.0, 1.0, 1.0, 0.05];
    const torque = clip(action[0], -2, 2);
    const turn = 2 * Math.PI;
    const around = ((((this.angle + Math.PI) % turn) + turn) % turn) - Math.PI;
    const cost = around ** 2 + 0.1 * this.turning ** 2 + 0.001 * torque ** 2;
    const pull = ((3 * gravity) / (2 * length)) * Math.sin(this.angle) + (3.0 / (mass * length ** 2)) * torque;
    this.turning = clip(this.turning + pull * dt, -8, 8);
    this.angle += this.turning * dt;
    this.torque = torque;
    return { reward: -cost, terminated: false };
  }

  observation() {
    return [Math.cos(this.angle), Math.sin(this.angle), this.turning];
  }

  push(random) {
    this.turning += random() < 0.5 ? -4 : 4;
  }

  draw(canvas) {
    const pen = fresh(canvas);
    const [x, y, length] = [canvas.width / 2, canvas.height / 2, canvas.height * 0.38];
    line(pen, x, y, x - Math.sin(this.angle) * length, y - Math.cos(this.angle) * length, 22, "#c0504d");
    dot(pen, x, y, 6, "#333");
    line(pen, x - 60, canvas.height - 20, x - 60 + (this.torque + 2) * 30, canvas.height - 20, 8, "#2b3a67");
  }
}

class MountainCar {
  reset(random) {
    this.position = between(random, -0.6, -0.4);
    this.speed = 0;
  }

  step(action) {
    this.speed = clip(this.speed + (action - 1) * 0.001 - Math.cos(3 * this.position) * 0.0025, -0.07, 0.07);
    this.position = clip(this.position + this.speed, -1.2, 0.6);
    if (this.position === -1.2 && this.speed < 0) {
      this.speed = 0;
    }
    return { reward: -1, terminated: this.position >= 0.5 };
  }

  observation() {
    return [this.position, this.speed];
  }

  push(random) {
    this.speed = clip(this.speed + (random() < 0.5 ? -0.03 : 0.03), -0.07, 0.07);
  }

  draw(canvas) {
    const pen = fresh(canvas);
    const at = (position) => [((position + 1.2) / 1.8) * canvas.width, canvas.height * (0.85 - 0.35 * (Math.sin(3 * position) + 1))];
    pen.beginPath();
    for (let k = 0; k <= 90; k++) {
      pen.lineTo(...at(-1.2 + (1.8 * k) / 90));
    }
    pen.lineWidth = 3;
    pen.strokeStyle = "#777";
    pen.stroke();
    const [x, y] = at(this.position);
    dot(pen, x, y - 12, 12, "#2b3a67");
    const [flagX, flagY] = at(0.5);
    line(pen, flagX, flagY, flagX, flagY - 45, 3, "#c0504d");
  }
}

class Acrobot {
  reset(random) {
    this.state = Array.from({ length: 4 }, () => between(random, -0.1, 0.1));
  }

  step(action) {
    const torque = action - 1;
    this.state = rungeKutta((state) => acrobotSlopes(state, torque), this.state, 0.2);
    this.state[0] = wrap(this.state[0]);
    this.state[1] = wrap(this.state[1]);
    this.state[2] = clip(this.state[2], -4 * Math.PI, 4 * Math.PI);
    this.state[3] = clip(this.state[3], -9 * Math.PI, 9 * Math.PI);
    const terminated = -Math.cos(this.state[0]) - Math.cos(this.state[1] + this.state[0]) > 1;
    return { reward: terminated ? 0 : -1, terminated };
  }

  observation() {
    const [first, second, firstSpeed, secondSpeed] = this.state;
    return [Math.cos(first), Math.sin(first), Math.cos(second), Math.sin(second), firstSpeed, secondSpeed];
  }

  push(random) {
    this.state[2] += random() < 0.5 ? -2 : 2;
  }

  draw(canvas) {
    const pen = fresh(canvas);
    const scale = canvas.height / 4.6;
    const [x, y] = [canvas.width / 2, canvas.height / 2];
    const middle = [x + Math.sin(this.state[0]) * scale, y + Math.cos(this.state[0]) * scale];
    const both = this.state[0] + this.state[1];
    line(pen, 0, y - scale, canvas.width, y - scale, 1, "#999");
    line(pen, x, y, ...middle, 12, "#2b3a67");
    line(pen, ...middle, middle[0] + Math.sin(both) * scale, middle[1] + Math.cos(both) * scale, 12, "#c8862d");
    dot(pen, ...middle, 6, "#333");
  }
}

function acrobotSlopes([first, second, firstSpeed, secondSpeed], torque) {
  const gravity = 9.8; // both links: mass 1, length 1, centre of mass at 0.5, moment of inertia 1
  const d1 = 0.25 + (1 + 0.25 + 2 * 0.5 * Math.cos(second)) + 2;
  const d2 = 0.25 + 0.5 * Math.cos(second) + 1;
  const phi2 = 0.5 * gravity * Math.cos(first + second - Math.PI / 2);
  const phi1 =
    -0.5 * secondSpeed ** 2 * Math.sin(second) -
    2 * 0.5 * secondSpeed * firstSpeed * Math.sin(second) +
    (0.5 + 1) * gravity * Math.cos(first - Math.PI / 2) +
    phi2;
  const secondPull =
    (torque + (d2 / d1) * phi1 - 0.5 * firstSpeed ** 2 * Math.sin(second) - phi2) / (0.25 + 1 - d2 ** 2 / d1);
  return [firstSpeed, secondSpeed, -(d2 * secondPull + phi1) / d1, secondPull];
}

function rungeKutta(slopes, state, dt) {
  const moved = (by, k) => state.map((value, at) => value + by * k[at]);
  const k1 = slopes(state);
  const k2 = slopes(moved(dt / 2, k1));
  const k3 = slopes(moved(dt / 2, k2));
  const k4 = slopes(moved(dt, k3));
  return state.map((value, at) => value + (dt / 6) * (k1[at] + 2 * k2[at] + 2 * k3[at] + k4[at]));
}

function wrap(angle) {
  let wrapped = angle;
  while (wrapped > Math.PI) wrapped -= 2 * Math.PI;
  while (wrapped < -Math.PI) wrapped += 2 * Math.PI;
  return wrapped;
}

function fresh(canvas) {
  const pen = canvas.getContext("2d");
  pen.clearRect(0, 0, canvas.width, canvas.height);
  pen.lineCap = "round";
  return pen;
}

function line(pen, x0, y0, x1, y1, width, colour) {
  pen.beginPath();
  pen.moveTo(x0, y0);
  pen.lineTo(x1, y1);
  pen.lineWidth = width;
  pen.strokeStyle = colour;
  pen.stroke();
}

function dot(pen, x, y, radius, colour) {
  pen.beginPath();
  pen.arc(x, y, radius, 0, 2 * Math.PI);
  pen.fillStyle = colour;
  pen.fill();
}

// By the id that Gymnasium gives them, with the frames a second that they are drawn at.
export const ENVIRONMENTS = {
  "CartPole-v0": { kind: CartPole, fps: 50 },
  "CartPole-v1": { kind: CartPole, fps: 50 },
  "Pendulum-v1": { kind: Pendulum, fps: 30 },
  "MountainCar-v0": { kind: MountainCar, fps: 30 },
  "Acrobot-v1": { kind: Acrobot, fps: 15 },
};

// Random numbers in [0, 1) from a seed, the same everywhere (mulberry32).
export function seeded(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}
