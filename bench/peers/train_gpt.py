#!/usr/bin/env python3
"""Whole training steps of a GPT: PyTorch's beside ours on the same GPUs, as one table.

Usage: train_gpt.py TRAIN_GPT [--models 163M,1417M] [--gpus 1] [--repeats 2]

TRAIN_GPT: our program. Models, batches and options are the same for both: T = 1024, vocabulary
50304, a head of its own, learned positions, biases in the blocks, bf16 compute with an fp32 master,
AdamW, clipping to 1. A time is the median of 12 steps after 4; every row runs `repeats` times, in
alternating order, in a process of its own. With one GPU, PyTorch keeps bf16 parameters beside an fp32
master (no autocast), attention by scaled_dot_product_attention, fused AdamW; with more it is FSDP2
(fully_shard of each block and the root, fp32 parameters, bf16 compute, fp32 reduce).
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

MODELS = {"163M": (12, 768, 12, 16), "1417M": (24, 2048, 16, 8)}  # layers, width, heads, batch
CONTEXT, VOCABULARY, WARM, TIMED = 1024, 50304, 4, 12


def build(layers, width, heads):
    import torch
    from torch import nn
    from torch.nn import functional as F

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.attn, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.fc, self.fc_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            b, t, c = x.shape
            qkv = self.attn(self.ln_1(x)).view(b, t, 3, heads, c // heads).permute(2, 0, 3, 1, 4)
            y = F.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], is_causal=True)
            x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
            return x + self.fc_proj(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(VOCABULARY, width), nn.Embedding(CONTEXT, width)
            self.blocks = nn.ModuleList(Block() for _ in range(layers))
            self.ln_f, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY, bias=False)
            for parameter in self.parameters():
                if parameter.dim() == 2:
                    nn.init.normal_(parameter, 0, 0.02)

        def forward(self, tokens, targets):
            x = self.wte(tokens) + self.wpe.weight
            for block in self.blocks:
                x = block(x)
            logits = self.head(self.ln_f(x))
            return F.cross_entropy(logits.view(-1, VOCABULARY), targets.reshape(-1))

    with torch.device("cuda"):
        return Gpt()


def one_gpu_step(model):
    import torch

    masters = [p.detach().clone().requires_grad_() for p in model.parameters()]
    model.bfloat16()
    working = list(model.parameters())
    optimizer = torch.optim.AdamW(masters, lr=3e-4, betas=(0.9, 0.99), weight_decay=0.1, fused=True)
    for master in masters:
        master.grad = torch.empty_like(master)

    def step(tokens, targets):
        loss = model(tokens, targets)
        loss.backward()
        with torch.no_grad():
            torch._foreach_copy_([m.grad for m in masters], [p.grad for p in working])
            torch.nn.utils.clip_grad_norm_(masters, 1.0)
            optimizer.step()
            torch._foreach_copy_(working, masters)
        for parameter in working:
            parameter.grad = None
        return loss

    return step


def fsdp2_step(model):
    import torch
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.blocks:
        fully_shard(block, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.99), weight_decay=0.1,
                                  fused=True)

    def step(tokens, targets):
        loss = model(tokens, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    return step


def worker(name):
    """One process of a PyTorch row: prints its milliseconds and peak as JSON."""
    import torch

    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    torch.cuda.set_device(rank)
    if world > 1:
        torch.distributed.init_process_group("nccl", device_id=torch.device("cuda", rank))
    layers, width, heads, batch = MODELS[name]
    torch.manual_seed(1)
    model = build(layers, width, heads)
    step = one_gpu_step(model) if world == 1 else fsdp2_step(model)
    torch.manual_seed(rank)
    draws = torch.randint(VOCABULARY, (WARM + TIMED, batch, CONTEXT + 1), device="cuda")
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(WARM + TIMED + 1)]
    marks[0].record()
    for draw, mark in zip(draws, marks[1:]):
        step(draw[:, :-1], draw[:, 1:])
        mark.record()
    torch.cuda.synchronize()
    times = [begin.elapsed_time(end) for begin, end in zip(marks, marks[1:])]
    if rank == 0:
        peak = torch.cuda.max_memory_allocated()
        print(json.dumps({"ms": statistics.median(times[WARM:]), "peak": peak}))
    if world > 1:
        torch.distributed.destroy_process_group()


def run(command, **more):
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, **more)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout


def torch_row(name, gpus):
    command = [sys.executable, os.path.abspath(__file__), "--worker", name]
    if gpus == 1:
        out = run(command)
    else:
        out = run([sys.executable, "-m", "torch.distributed.run", "--standalone",
                   f"--nproc_per_node={gpus}"] + command[1:])
    row = json.loads([line for line in out.splitlines() if line.startswith("{")][-1])
    return row["ms"], row["peak"]


def our_row(program, name, gpus):
    layers, width, heads, batch = MODELS[name]
    with tempfile.TemporaryDirectory() as folder:
        metrics = os.path.join(folder, "metrics.jsonl")
        run([program, "--device", "cuda", "--precision", "bf16_mixed", "--strategy", "full_shard",
             "--layers", str(layers), "--width", str(width), "--heads", str(heads),
             "--context", str(CONTEXT), "--vocab", str(VOCABULARY), "--untied-head",
             "--ranks", str(gpus), "--batch", str(batch * gpus), "--steps", str(WARM + TIMED),
             "--lr", "3e-4", "--clip", "1", "--metrics", metrics])
        with open(metrics) as file:
            steps = [json.loads(line) for line in file]
    timed = steps[WARM:WARM + TIMED]
    tokens = batch * gpus * CONTEXT
    return (statistics.median(1e3 * tokens / step["tokens_per_s"] for step in timed),
            timed[-1]["peak_device_bytes"])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", nargs="?")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--worker")
    options = parser.parse_args()
    if options.worker:
        return worker(options.worker)
    peer = "PyTorch" if options.gpus == 1 else "FSDP2"
    print(f"| model, {options.gpus} GPU | flatshard ms (GiB) | {peer} ms (GiB) | ours / theirs |")
    print("|---|---|---|---|", flush=True)
    for name in options.models.split(","):
        ours, theirs = [], []
        for repeat in range(options.repeats):
            rows = [lambda: ours.append(our_row(options.program, name, options.gpus)),
                    lambda: theirs.append(torch_row(name, options.gpus))]
            for row in rows if repeat % 2 == 0 else reversed(rows):
                row()
        cells = [" ".join(f"{ms:.1f} ({peak / 2**30:.1f})" for ms, peak in rows)
                 for rows in (ours, theirs)]
        best = [min(ms for ms, _ in rows) for rows in (ours, theirs)]
        print(f"| {name} | {cells[0]} | {cells[1]} | {best[0] / best[1]:.2f} |", flush=True)


if __name__ == "__main__":
    main()
