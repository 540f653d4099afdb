"""The hybrid with experts: beside those that a row chooses, one that all go through, behind the sigmoid of a gate."""
from model import sigmoid, silu
from qwen3moe import Qwen3Moe
from qwen35 import Qwen35


class Qwen35Moe(Qwen35):
    def feed_forward(self, x, name):
        part = lambda tensor, x: self.linear(x, f"{name}.ffn_{tensor}_shexp")
        shared = part("down", silu(part("gate", x)) * part("up", x))
        gate = x @ self.weights[f"{name}.ffn_gate_inp_shexp.weight"].reshape(-1)
        return Qwen3Moe.feed_forward(self, x, name) + sigmoid(gate)[:, None] * shared
