#!/usr/bin/env python3
"""PyTorch's kernels beside ours on the same GPU, as one table.

Usage: kernels.py [OURS]    OURS: what `cuda_kernels_bench --json` printed on this machine

Prints a Markdown table: TB/s of both (the bytes that the work needs, the same for both), each as a
share of our best copy, and their ratio. Times are medians of seven batches between two events.
"""
import json
import statistics
import sys

import torch

SIZES = {"124M": 124439808, "268M": 268435456, "1e9": 1000000000}


def gpt2(layers, width):
    block = [width, width, 3 * width * width, 3 * width, width * width, width, width, width]
    block += [4 * width * width, 4 * width, 4 * width * width, width]
    return [50257 * width, 1024 * width] + layers * block + [width, width]


LISTS = {"gpt2-148": gpt2(12, 768), "gpt2-292": gpt2(24, 1600)}


def milliseconds(run):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def batch(calls):
        begin.record()
        for _ in range(calls):
            run()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / calls

    batch(2)
    calls = max(1, min(50, int(3 / batch(1))))
    return statistics.median(batch(calls) for _ in range(7))


def tensors(counts, dtype=torch.float32):
    return [torch.empty(count, dtype=dtype, device="cuda").uniform_(-1, 1) for count in counts]


def optimizer_row(make, counts, dtype):
    parameters = [torch.nn.Parameter(t) for t in tensors(counts, dtype)]
    for parameter in parameters:
        parameter.grad = torch.empty_like(parameter).uniform_(-1, 1)
    optimizer = make(parameters)
    return milliseconds(optimizer.step)


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=1e-4, fused=True)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=1e-4, momentum=0.9, fused=True)


def adagrad(parameters):
    return torch.optim.Adagrad(parameters, lr=1e-2, foreach=True)


def amsgrad(parameters):
    return torch.optim.Adam(parameters, lr=1e-4, amsgrad=True, fused=True)


def nadam(parameters):
    return torch.optim.NAdam(parameters, lr=1e-4, foreach=True)


def rmsprop(parameters):
    return torch.optim.RMSprop(parameters, lr=1e-4, foreach=True)


def cast_row(count, source, destination):
    a = tensors([count], source)[0]
    b = torch.empty(count, dtype=destination, device="cuda")
    return milliseconds(lambda: b.copy_(a))


def norm_row(counts, dtype):
    gradients = tensors(counts, dtype)
    return milliseconds(lambda: torch.nn.utils.get_total_norm(gradients, foreach=True))


def flatten_row(counts, source, destination, unflatten):
    whole = tensors(counts, source)
    flat = torch.empty(sum(counts), dtype=destination, device="cuda")
    views = list(flat.split(counts))
    if unflatten:
        flat = flat.to(source)
        views = list(flat.split(counts))
        whole = tensors(counts, destination)
        return milliseconds(lambda: torch._foreach_copy_(whole, views))
    return milliseconds(lambda: torch._foreach_copy_(views, whole))


def cat_row(counts, dtype):
    whole = tensors(counts, dtype)
    flat = torch.empty(sum(counts), dtype=dtype, device="cuda")
    return milliseconds(lambda: torch.cat(whole, out=flat))


FP32, BF16 = torch.float32, torch.bfloat16


def rows():
    """(our name, our size, its peer, bytes, milliseconds)"""
    for name, count in SIZES.items():
        yield "copy fp32, packs 1", name, "copy_", 8 * count, lambda: cast_row(count, FP32, FP32)
        yield "cast fp32 to bf16", name, "copy_", 6 * count, lambda: cast_row(count, FP32, BF16)
        yield "cast bf16 to fp32", name, "copy_", 6 * count, lambda: cast_row(count, BF16, FP32)
        yield "norm fp32", name, "total norm", 4 * count, lambda: norm_row([count], FP32)
        yield "norm bf16", name, "total norm", 2 * count, lambda: norm_row([count], BF16)
        yield "adamw fp32", name, "fused", 28 * count, lambda: optimizer_row(adamw, [count], FP32)
        yield "adamw bf16", name, "fused", 14 * count, lambda: optimizer_row(adamw, [count], BF16)
        yield "sgd momentum fp32", name, "fused", 20 * count, lambda: optimizer_row(sgd, [count], FP32)
        yield "adagrad fp32", name, "foreach", 20 * count, lambda: optimizer_row(adagrad, [count], FP32)
        yield "amsgrad fp32", name, "fused", 36 * count, lambda: optimizer_row(amsgrad, [count], FP32)
        yield "nadam fp32", name, "foreach", 28 * count, lambda: optimizer_row(nadam, [count], FP32)
        yield "rmsprop fp32", name, "foreach", 20 * count, lambda: optimizer_row(rmsprop, [count], FP32)
    # The lists: ours are stepped and measured as one flat buffer of as many elements.
    for name, counts in LISTS.items():
        total = sum(counts)
        flat = {"gpt2-148": "124M"}.get(name)
        if flat:
            yield "adamw fp32", flat, f"fused, {len(counts)} tensors", 28 * total, lambda: optimizer_row(
                adamw, counts, FP32)
            yield "adamw bf16", flat, f"fused, {len(counts)} tensors", 14 * total, lambda: optimizer_row(
                adamw, counts, BF16)
            yield "norm fp32", flat, f"total norm, {len(counts)} tensors", 4 * total, lambda: norm_row(counts, FP32)
        yield "flatten fp32", name, "cat", 8 * total, lambda: cat_row(counts, FP32)
        yield "flatten fp32 to bf16", name, "foreach_copy_", 6 * total, lambda: flatten_row(
            counts, FP32, BF16, False)
        yield "unflatten fp32 to bf16", name, "foreach_copy_", 6 * total, lambda: flatten_row(
            counts, FP32, BF16, True)
        yield "flatten bf16", name, "cat", 4 * total, lambda: cat_row(counts, BF16)


def main():
    ours, copy = {}, 0
    if len(sys.argv) > 1:
        for line in open(sys.argv[1], encoding="utf-8"):
            if line.startswith("{"):
                row = json.loads(line)
                ours[row["bench"], row["size"]] = row["tb_s"]
                if row["bench"].startswith("copy"):
                    copy = max(copy, row["tb_s"])
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}; our best copy: {copy:.3f} TB/s\n")
    print("| work | size | ours TB/s (of the copy) | PyTorch | TB/s (of the copy) | ratio |")
    print("|---|---|---|---|---|---|")
    share = lambda rate: f"{rate:.2f} ({rate / copy:.2f})" if copy else f"{rate:.2f}"
    for name, size, peer, count, measure in rows():
        theirs = count * 1e-9 / measure()
        torch.cuda.empty_cache()
        own = ours.get((name, size))
        mine, ratio = (share(own), f"{own / theirs:.2f}") if own else ("-", "-")
        print(f"| {name} | {size} | {mine} | {peer} | {share(theirs)} | {ratio} |", flush=True)


if __name__ == "__main__":
    main()
