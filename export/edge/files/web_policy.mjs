// The policy: raw observation in, action out, by ONNX Runtime in WebAssembly. Nothing is fetched from other hosts.
import * as ort from "./onnxruntime/ort.wasm.min.mjs";

ort.env.wasm.wasmPaths = new URL("./onnxruntime/", import.meta.url).href;
ort.env.wasm.numThreads = 1; // more would need a host that sends cross-origin isolation headers

const ARRAYS = {
  float32: Float32Array, float64: Float64Array, int8: Int8Array, uint8: Uint8Array, int16: Int16Array,
  uint16: Uint16Array, int32: Int32Array, uint32: Uint32Array, int64: BigInt64Array, uint64: BigUint64Array,
};

export class Policy {
  constructor(session, about) {
    this.session = session;
    this.about = about;
  }

  static async load() {
    const about = await (await fetch("policy.json")).json();
    const model = new Uint8Array(await (await fetch("policy.onnx")).arrayBuffer());
    return new Policy(await ort.InferenceSession.create(model, { executionProviders: ["wasm"] }), about);
  }

  // Every output, as plain numbers, for the arrays of one observation by name.
  async run(observation) {
    const feeds = {};
    for (const { name, dtype, shape } of this.about.inputs) {
      const kind = ARRAYS[dtype];
      const numbers = dtype.endsWith("int64") ? observation[name].map(BigInt) : observation[name];
      feeds[name] = new ort.Tensor(dtype, kind.from(numbers), [1, ...shape]);
    }
    const results = await this.session.run(feeds);
    return Object.fromEntries(Object.entries(results).map(([name, tensor]) => [name, Array.from(tensor.data, Number)]));
  }

  // The action for an observation of a single array: a number for a choice, an array of numbers otherwise.
  async act(observation) {
    const { action } = await this.run({ obs: observation });
    const { shape } = this.about.outputs.find((output) => output.name === "action");
    return shape.length ? action : action[0];
  }

  // The largest |got - recorded| over max(1, largest magnitude in the row), and how many choices differ.
  async replayGolden() {
    const { inputs, outputs } = this.about.golden;
    const count = Object.values(inputs)[0].length;
    let worst = 0;
    let turned = 0;
    for (let row = 0; row < count; row++) {
      const observation = Object.fromEntries(Object.entries(inputs).map(([name, rows]) => [name, rows[row]]));
      const got = await this.run(observation);
      for (const { name, dtype } of this.about.outputs) {
        const expected = outputs[name][row];
        if (!dtype.startsWith("float")) {
          turned += expected.some((value, at) => value !== got[name][at]) ? 1 : 0;
          continue;
        }
        const scale = Math.max(1, ...expected.map(Math.abs));
        worst = Math.max(worst, ...expected.map((value, at) => Math.abs(value - got[name][at]) / scale));
      }
    }
    return { count, worst, turned, passed: worst <= this.about.tolerance };
  }
}
