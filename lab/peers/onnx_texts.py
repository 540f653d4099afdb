"""Embeddings of texts by ONNX Runtime, on an encoder of nomic-bert's kind with random weights, which its own dynamic quantisation makes int8.
lab/texts.ts starts it with a Python that has onnxruntime, onnx and numpy:

  python onnx_texts.py '{"layers": 12, "width": 768, "heads": 12, "inner": 3072, "vocabulary": 30522, "tokens": 512, "threads": 1, "per_channel": false}'

For each line with a number of texts it computes as many at once, and prints the CPU time and the time that took: {"cpu_ms", "wall_ms"}.
"""

import json
import os
import sys
import tempfile
import time

import numpy
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic

ROPE_BASE = 1000.0
EPSILON = 1e-12


class Graph:
    def __init__(self):
        self.nodes, self.constants = [], []
        self.random = numpy.random.default_rng(1)

    def constant(self, value, kind=numpy.float32):
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(numpy.asarray(value, kind), name))
        return name

    def add(self, kind, *inputs, outputs=1, **attributes):
        names = [f"n{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, **attributes))
        return names[0] if outputs == 1 else names

    def weights(self, rows, columns):
        return self.constant(self.random.standard_normal((rows, columns), dtype=numpy.float32) * 0.02)

    def product(self, x, rows, columns):
        return self.add("MatMul", x, self.weights(rows, columns))

    def norm(self, x, width):
        one, zero = self.constant(numpy.ones(width)), self.constant(numpy.zeros(width))
        return self.add("LayerNormalization", x, one, zero, axis=-1, epsilon=EPSILON)


def encoder(shape):
    """The graph from ids to a row for each text, the mean of its tokens'."""
    width, heads, inner, tokens = (shape[key] for key in ("width", "heads", "inner", "tokens"))
    dim = width // heads
    g = Graph()
    angles = numpy.arange(tokens)[:, None] / (ROPE_BASE ** (numpy.arange(dim // 2) * 2 / dim))[None]
    cosines = g.constant(numpy.concatenate([numpy.cos(angles)] * 2, 1))
    sines = g.constant(numpy.concatenate([-numpy.sin(angles), numpy.sin(angles)], 1))
    halves = g.constant([dim // 2, dim // 2], numpy.int64)
    apart, together = g.constant([0, 0, heads, dim], numpy.int64), g.constant([0, 0, width], numpy.int64)
    thirds, scale = g.constant([width] * 3, numpy.int64), g.constant(dim**-0.5)

    def split(x):
        return g.add("Transpose", g.add("Reshape", x, apart), perm=[0, 2, 1, 3])

    def turned(x):
        a, b = g.add("Split", x, halves, outputs=2, axis=-1)
        other = g.add("Concat", b, a, axis=-1)
        return g.add("Add", g.add("Mul", x, cosines), g.add("Mul", other, sines))

    x = g.norm(g.add("Gather", g.weights(shape["vocabulary"], width), "ids"), width)
    for _ in range(shape["layers"]):
        q, k, v = (split(part) for part in g.add("Split", g.product(x, width, 3 * width), thirds, outputs=3, axis=-1))
        keys = g.add("Transpose", turned(k), perm=[0, 1, 3, 2])
        seen = g.add("Softmax", g.add("Mul", g.add("MatMul", turned(q), keys), scale), axis=-1)
        mixed = g.add("Transpose", g.add("MatMul", seen, v), perm=[0, 2, 1, 3])
        x = g.norm(g.add("Add", g.product(g.add("Reshape", mixed, together), width, width), x), width)
        gate, up = g.product(x, width, inner), g.product(x, width, inner)
        active = g.add("Mul", g.add("Mul", gate, g.add("Sigmoid", gate)), up)
        x = g.norm(g.add("Add", g.product(active, inner, width), x), width)
    g.nodes.append(helper.make_node("ReduceMean", [x, g.constant([1], numpy.int64)], ["row"], keepdims=0))
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, ["texts", tokens])
    row = helper.make_tensor_value_info("row", TensorProto.FLOAT, ["texts", width])
    graph = helper.make_graph(g.nodes, "encoder", [ids], [row], g.constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def session(shape):
    with tempfile.TemporaryDirectory() as folder:
        exact, rounded = (os.path.join(folder, name) for name in ("f32.onnx", "int8.onnx"))
        onnx.save(encoder(shape), exact)
        quantize_dynamic(exact, rounded, weight_type=QuantType.QInt8, per_channel=shape["per_channel"])
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = shape["threads"], 1
        # A thread that waits would count as CPU time.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        return onnxruntime.InferenceSession(rounded, options, providers=["CPUExecutionProvider"])


def main():
    shape = json.loads(sys.argv[1])
    model = session(shape)
    print(json.dumps({"version": onnxruntime.__version__}), flush=True)
    for line in sys.stdin:
        ids = numpy.random.default_rng(2).integers(0, shape["vocabulary"], (int(line), shape["tokens"]))
        cpu, wall = time.process_time(), time.perf_counter()
        model.run(None, {"ids": ids})
        spent = {"cpu_ms": (time.process_time() - cpu) * 1e3, "wall_ms": (time.perf_counter() - wall) * 1e3}
        print(json.dumps(spent), flush=True)


main()
