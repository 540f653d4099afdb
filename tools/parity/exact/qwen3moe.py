"""The mixture of experts: the softmax over all chooses, and the chosen weights are divided by their sum."""
import numpy as np

from model import Model, silu


class Qwen3Moe(Model):
    def feed_forward(self, x, name):
        scores = np.exp(self.linear(x, f"{name}.ffn_gate_inp"))
        scores /= scores.sum(axis=-1, keepdims=True)
        gate, up, down = (self.weights[f"{name}.ffn_{part}_exps.weight"] for part in ("gate", "up", "down"))
        out = np.zeros_like(x)
        for row, (h, score) in enumerate(zip(x, scores)):
            chosen = np.argsort(-score, kind="stable")[:self.key("expert_used_count")]
            for expert in chosen:
                weight = score[expert] / score[chosen].sum()
                out[row] += weight * (down[expert] @ (silu(gate[expert] @ h) * (up[expert] @ h)))
        return out
