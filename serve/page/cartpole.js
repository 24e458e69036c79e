// CartPole-v1's own equations (Barto, Sutton & Anderson 1983), Euler steps of 0.02 s.
const GRAVITY = 9.8, POLE_MASS = 0.1, TOTAL_MASS = 1.1, HALF_LENGTH = 0.5, FORCE = 10, STEP = 0.02;

export function fresh() {
  return Array.from({ length: 4 }, () => Math.random() * 0.1 - 0.05);
}

export function step([x, speed, angle, turn], action) {
  const force = action === 1 ? FORCE : -FORCE, cos = Math.cos(angle), sin = Math.sin(angle);
  const push = (force + POLE_MASS * HALF_LENGTH * turn * turn * sin) / TOTAL_MASS;
  const angular = (GRAVITY * sin - cos * push) / (HALF_LENGTH * (4 / 3 - (POLE_MASS * cos * cos) / TOTAL_MASS));
  const linear = push - (POLE_MASS * HALF_LENGTH * angular * cos) / TOTAL_MASS;
  return [x + STEP * speed, speed + STEP * linear, angle + STEP * turn, turn + STEP * angular];
}

export function fallen([x, , angle]) {
  return Math.abs(x) > 2.4 || Math.abs(angle) > (12 * Math.PI) / 180;
}
