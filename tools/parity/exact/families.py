"""The class that computes each architecture. Families without one differ from others only by facts: see described.py."""
from gguf import GGUFReader

import newer_types  # noqa: F401, registers them
from arcee import Arcee
from gemma import Gemma, Gemma2, Gemma3, Gemma4, Gemma4Assistant, GemmaEmbedding
from gemma3n import Gemma3n
from deci import Deci
from described import Described
from dflash import DFlash
from deepseek2 import DeepSeek2
from deepseek import BailingMoe, Deepseek
from eagle3 import Eagle3
from ernie45_moe import Ernie45Moe
from lfm2 import Lfm2, Lfm2Moe
from gated_heads import Laguna, Step35
from gpt_oss import GptOss
from encoders import Bert, EuroBert, JinaBertV2, JinaBertV3, LlamaEmbed, ModernBert, NeoBert, NomicBert, NomicBertMoe
from gpt_neox import GptNeoX, Phi2, StableLm
from kimi_linear import BailingMoe3, KimiLinear
from layer_normed import Cohere2, Cohere2Moe, CommandR, Nemotron, StarCoder2
from llama import Llama
from llama4 import Llama4
from mamba_hybrids import FalconH1, GraniteHybrid, Mamba2, NemotronH, NemotronHMoe
from model import Model
from mellum import Mellum
from minicpm import MiniCpm
from minicpm3 import MiniCpm3
from nanbeige import Nanbeige
from minimax_m2 import MiniMaxM2
from mistral3 import Mistral3
from glm4 import Glm4
from hunyuan import HunyuanDense, HunyuanMoe, Maincoder
from sigmoid_experts import Afmoe, BailingMoe2, Dots1, ExaoneMoe, Glm4Moe, HyV3, MiMo2, MiniMaxM3
from granite import Granite, GraniteMoe, GraniteSwa
from olmoe import Olmoe
from post_normed import Exaone4, MuseGlimmer, Olmo2
from phi3 import Phi3
from plamo3 import Plamo3
from qwen35 import Qwen35
from qwen35moe import Qwen35Moe
from qwen3next import Qwen3Next
from qwen2moe import Qwen2Moe
from qwen3moe import Qwen3Moe
from seed_oss import SeedOss
from smallthinker import SmallThinker
from smollm3 import SmolLM3
from sparse import DeepSeek32, GlmDsa

FAMILIES = {
    "gemma": Gemma,
    "gemma2": Gemma2,
    "gemma3": Gemma3,
    "gemma3n": Gemma3n,
    "gemma4": Gemma4,
    "gemma-embedding": GemmaEmbedding,
    "lfm2": Lfm2,
    "lfm2moe": Lfm2Moe,
    "granitehybrid": GraniteHybrid,
    "falcon-h1": FalconH1,
    "mamba2": Mamba2,
    "bert": Bert,
    "nomic-bert": NomicBert,
    "nomic-bert-moe": NomicBertMoe,
    "modern-bert": ModernBert,
    "neo-bert": NeoBert,
    "jina-bert-v2": JinaBertV2,
    "jina-bert-v3": JinaBertV3,
    "eurobert": EuroBert,
    "llama-embed": LlamaEmbed,
    "llama": Llama,
    "deci": Deci,
    "command-r": CommandR,
    "cohere2": Cohere2,
    "cohere2moe": Cohere2Moe,
    "nemotron_h": NemotronH,
    "nemotron_h_moe": NemotronHMoe,
    "qwen2": Model,
    "qwen3": Model,
    "qwen2moe": Qwen2Moe,
    "qwen3moe": Qwen3Moe,
    "mellum": Mellum,
    "qwen35": Qwen35,
    "qwen35moe": Qwen35Moe,
    "qwen3next": Qwen3Next,
    "ernie4_5-moe": Ernie45Moe,
    "seed_oss": SeedOss,
    "arcee": Arcee,
    "minicpm": MiniCpm,
    "starcoder2": StarCoder2,
    "nemotron": Nemotron,
    "gptneox": GptNeoX,
    "phi2": Phi2,
    "stablelm": StableLm,
    "nanbeige": Nanbeige,
    "smollm3": SmolLM3,
    "gpt-oss": GptOss,
    "phi3": Phi3,
    "glm4": Glm4,
    "plamo3": Plamo3,
    "glm4moe": Glm4Moe,
    "bailingmoe2": BailingMoe2,
    "deepseek2": DeepSeek2,
    "minicpm3": MiniCpm3,
    "minimax-m2": MiniMaxM2,
    "minimax-m3": MiniMaxM3,
    "deepseek": Deepseek,
    "bailingmoe": BailingMoe,
    "afmoe": Afmoe,
    "exaone-moe": ExaoneMoe,
    "hy_v3": HyV3,
    "dots1": Dots1,
    "mimo2": MiMo2,
    "muse-glimmer": MuseGlimmer,
    "hunyuan-dense": HunyuanDense,
    "maincoder": Maincoder,
    "hunyuan-moe": HunyuanMoe,
    "olmo2": Olmo2,
    "olmoe": Olmoe,
    "exaone4": Exaone4,
    "granite": Granite,
    "granitemoe": GraniteMoe,
    "granite_swa": GraniteSwa,
    "mistral3": Mistral3,
    "mistral4": DeepSeek2,
    "llama4": Llama4,
    "smallthinker": SmallThinker,
    "step35": Step35,
    "laguna": Laguna,
    "deepseek32": DeepSeek32,
    "glm-dsa": GlmDsa,
    "kimi-linear": KimiLinear,
    "bailingmoe3": BailingMoe3,
    "eagle3": Eagle3,
    "dflash": DFlash,
    "gemma4-assistant": Gemma4Assistant,
}


def open_model(path, context, facts=None):
    reader = GGUFReader(path)
    architecture = reader.fields["general.architecture"].contents()
    if architecture in FAMILIES:
        return FAMILIES[architecture](reader, context)
    if facts is None:
        raise SystemExit(f"No exact pass computes {architecture!r}. Pass the traits of its family with --facts.")
    return Described(reader, context, facts)
