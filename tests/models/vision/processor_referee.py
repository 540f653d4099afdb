"""Patches of PNG images by Hugging Face's Qwen2VLImageProcessor. Arguments: folder of the packages, images.

Writes NAME.patches (f32, in the processor's order, the first frame only) beside each image, and prints the grids.
"""
import json
import sys

sys.path.insert(0, sys.argv[1])
import numpy as np
from PIL import Image
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

size = {"shortest_edge": 256 * 256, "longest_edge": 1024 * 32 * 32}
half = [0.5, 0.5, 0.5]
processor = Qwen2VLImageProcessorPil(
    patch_size=16, merge_size=2, temporal_patch_size=2, image_mean=half, image_std=half, size=size
)
grids = []
for name in sys.argv[2:]:
    image = Image.open(name)
    if image.mode in ("LA", "RGBA"):
        image = image.convert("RGBA")
        white = Image.new("RGB", image.size, (255, 255, 255))
        white.paste(image, mask=image.split()[3])
        image = white
    made = processor(images=[image.convert("RGB")], return_tensors="np")
    grid = [int(n) for n in made["image_grid_thw"][0]]
    patches = made["pixel_values"].reshape(grid[1] * grid[2], 3, 2, 256)[:, :, 0]
    np.ascontiguousarray(patches, dtype=np.float32).tofile(name + ".patches")
    grids.append(grid[1:])
print(json.dumps(grids))
