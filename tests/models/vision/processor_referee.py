"""Patches of PNG images by a processor of Hugging Face's transformers.

Arguments: folder of the packages, kind of the tower, pixels on a side of a patch, patches on a side of a token, images.
Writes NAME.patches (f32, in the engine's order, the first frame only) beside each image. Prints for each image the rows
and columns of patches, and the rows and columns of tiles (0 if the image has no tiles).
"""
import json
import sys

sys.path.insert(0, sys.argv[1])
import numpy as np
from PIL import Image
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
from transformers.models.gemma4.image_processing_pil_gemma4 import Gemma4ImageProcessorPil
from transformers.models.pixtral.image_processing_pil_pixtral import PixtralImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.smolvlm.image_processing_pil_smolvlm import SmolVLMImageProcessorPil

kind, patch, merged = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
factor = patch * merged
half = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
processor = {
    "qwen3vl": lambda: Qwen2VLImageProcessorPil(
        patch_size=patch, merge_size=merged, size={"shortest_edge": 256 * 256, "longest_edge": 1024 * factor**2}, **half
    ),
    "gemma3": lambda: Gemma3ImageProcessorPil(size={"height": 896, "width": 896}, **half),
    "gemma4": lambda: Gemma4ImageProcessorPil(patch_size=patch, pooling_kernel_size=merged, max_soft_tokens=280),
    "idefics3": lambda: SmolVLMImageProcessorPil(
        size={"longest_edge": 2048}, max_image_size={"longest_edge": 512}, return_row_col_info=True, **half
    ),
    "pixtral": lambda: PixtralImageProcessorPil(size={"longest_edge": 1540}, patch_size=factor),
}[kind]()


def in_patches(pictures):
    """[pictures, 3, height, width] -> [patches, 3 * patch * patch], patches of a token side by side."""
    count, _, height, width = pictures.shape
    rows, columns = height // patch, width // patch
    whole = pictures[:, :, : rows * patch, : columns * patch]
    cut = whole.reshape(count, 3, rows // merged, merged, patch, columns // merged, merged, patch)
    return cut.transpose(0, 2, 5, 3, 6, 1, 4, 7), rows, columns


grids = []
for name in sys.argv[5:]:
    image = Image.open(name)
    if image.mode in ("LA", "RGBA"):
        image = image.convert("RGBA")
        white = Image.new("RGB", image.size, (255, 255, 255))
        white.paste(image, mask=image.split()[3])
        image = white
    made = processor(images=[image.convert("RGB")], return_tensors="np")
    tiles = [0, 0]
    if kind == "qwen3vl":
        _, rows, columns = [int(n) for n in made["image_grid_thw"][0]]
        patches = made["pixel_values"].reshape(rows * columns, 3, 2, patch**2)[:, :, 0]
    elif kind == "gemma4":
        columns, rows = [int(n) + 1 for n in np.asarray(made["image_position_ids"])[0].max(axis=0)]
        shape = (rows // merged, merged, columns // merged, merged, patch, patch, 3)
        cut = np.asarray(made["pixel_values"])[0][: rows * columns].reshape(shape)
        patches = 2 * cut.transpose(0, 2, 1, 3, 6, 4, 5) - 1  # the model's code does this
    else:
        pictures = made["pixel_values"]
        if kind == "idefics3":
            pictures, tiles = pictures[0], [made["rows"][0][0], made["cols"][0][0]]
        patches, rows, columns = in_patches(np.asarray(pictures))
    np.ascontiguousarray(patches, dtype=np.float32).tofile(name + ".patches")
    grids.append([rows, columns, *[int(n) for n in tiles]])
print(json.dumps(grids))
