"""ERNIE 4.5 with experts, as Hugging Face's modeling_ernie4_5_moe.py has it: a bias chooses by the softmax over all and does not weigh."""
import numpy as np

from llama import Llama
from model import silu, softmax


class Ernie45Moe(Llama):
    def feed_forward(self, x, name):
        if f"{name}.ffn_gate_inp.weight" not in self.weights:
            return super().feed_forward(x, name)
        scores, bias = softmax(self.linear(x, f"{name}.ffn_gate_inp")), self.weights[f"{name}.exp_probs_b.bias"]
        gate, up, down = (self.weights[f"{name}.ffn_{part}_exps.weight"] for part in ("gate", "up", "down"))
        out = self.shared(x, name)
        for row, (h, score) in enumerate(zip(x, scores)):
            chosen = np.argsort(-(score + bias), kind="stable")[:self.key("expert_used_count")]
            for expert in chosen:
                weight = score[expert] / score[chosen].sum()
                out[row] += weight * (down[expert] @ (silu(gate[expert] @ h) * (up[expert] @ h)))
        return out

    def shared(self, x, name):
        gate, up, down = (f"{name}.ffn_{part}_shexp" for part in ("gate", "up", "down"))
        return self.linear(silu(self.linear(x, gate)) * self.linear(x, up), down)
