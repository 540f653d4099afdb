"""Qwen3-Next: value heads of a key head stand side by side, and of each such group first the betas, then the alphas."""
import numpy as np

from qwen35moe import Qwen35Moe


class Qwen3Next(Qwen35Moe):
    def shared_heads(self):
        return np.arange(self.value_heads) // (self.value_heads // self.key_heads)

    def beta_and_alpha(self, x, name):
        both = self.linear(x, f"{name}.ssm_ba").reshape(len(x), self.key_heads, 2, -1)
        return (both[:, :, part].reshape(len(x), -1) for part in range(2))
