#!/usr/bin/env python3
"""dequantise.py IN.gguf OUT.gguf: the same model with every tensor in f32, as transformers computes with it.

Products of f32 weights round no activations. So this separates what 8-bit products add to a divergence from what a
policy does (docs/peers.md).
"""
import sys

import gguf


def dequantise(source, target):
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, reader.fields["general.architecture"].contents())
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", "general.file_type"):
            continue
        sub_type = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), field.types[0], sub_type=sub_type)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    tensors = [(t.name, gguf.quants.dequantize(t.data, t.tensor_type)) for t in reader.tensors]
    for name, data in tensors:
        writer.add_tensor(name, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    dequantise(*sys.argv[1:])
