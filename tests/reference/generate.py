#!/usr/bin/env python3
"""Writes what PyTorch's single-tensor optimizers do to a few fp32 elements.

Usage: generate.py > optimizer_tables.inc          (needs torch; versions differ in last digits)
       generate.py moments > moment_tables.inc     (the same inputs)

torch.optim has no Lion: it is written here with the same tensor operations that a PyTorch program
would use, from the paper's algorithm 2.
"""
import sys

import torch

COUNT, STEPS, CHECKED = 10, 10, (1, 10)


class Lion(torch.optim.Optimizer):
    def __init__(self, parameters, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(parameters, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                m = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
                direction = m.mul(beta1).add(p.grad, alpha=1 - beta1).sign()
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(direction, alpha=-group["lr"])
                m.mul_(beta2).add_(p.grad, alpha=1 - beta2)


PLAIN = {"foreach": False}
# (C++ initialiser, optimizer, its arguments, names of its states)
CASES = [
    ("AdamW{}", torch.optim.AdamW, PLAIN, ("exp_avg", "exp_avg_sq")),
    (
        "AdamW{.lr = 3e-4, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.1}",
        torch.optim.AdamW,
        {"lr": 3e-4, "betas": (0.9, 0.95), "eps": 1e-6, "weight_decay": 0.1, **PLAIN},
        ("exp_avg", "exp_avg_sq"),
    ),
    (
        "AdamW{.lr = 0.01, .beta1 = 0.0, .beta2 = 0.99, .weight_decay = 0.0}",
        torch.optim.AdamW,
        {"lr": 0.01, "betas": (0.0, 0.99), "weight_decay": 0.0, **PLAIN},
        ("exp_avg", "exp_avg_sq"),
    ),
    ("SGD{.lr = 0.1}", torch.optim.SGD, {"lr": 0.1, **PLAIN}, ()),
    (
        "SGD{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01}",
        torch.optim.SGD,
        {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01, **PLAIN},
        ("momentum_buffer",),
    ),
    (
        "SGD{.lr = 0.05, .momentum = 0.8, .dampening = 0.3}",
        torch.optim.SGD,
        {"lr": 0.05, "momentum": 0.8, "dampening": 0.3, **PLAIN},
        ("momentum_buffer",),
    ),
    (
        "SGD{.lr = 0.02, .momentum = 0.9, .weight_decay = 0.1, .nesterov = true, .maximize = true}",
        torch.optim.SGD,
        {"lr": 0.02, "momentum": 0.9, "weight_decay": 0.1, "nesterov": True, "maximize": True, **PLAIN},
        ("momentum_buffer",),
    ),
    ("Adagrad{}", torch.optim.Adagrad, PLAIN, ("sum",)),
    (
        "Adagrad{.lr = 0.1, .lr_decay = 0.1, .weight_decay = 0.01, .eps = 1e-6}",
        torch.optim.Adagrad,
        {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.01, "eps": 1e-6, **PLAIN},
        ("sum",),
    ),
    ("Lion{}", Lion, {}, ("exp_avg",)),
    (
        "Lion{.lr = 1e-3, .beta1 = 0.95, .beta2 = 0.98, .weight_decay = 0.5}",
        Lion,
        {"lr": 1e-3, "betas": (0.95, 0.98), "weight_decay": 0.5},
        ("exp_avg",),
    ),
]


# Options that torch 1.13, which wrote moment_tables.inc, has. Its single-tensor NAdam multiplies the
# product of momenta by the last one twice; later versions, and its own foreach form, do not.
MOMENT_CASES = [
    ("AdamW{.lr = 0.01, .weight_decay = 0.1, .maximize = true}", torch.optim.AdamW,
     {"lr": 0.01, "weight_decay": 0.1, "maximize": True, **PLAIN}, ("exp_avg", "exp_avg_sq")),
    ("Adam{}", torch.optim.Adam, PLAIN, ("exp_avg", "exp_avg_sq")),
    ("Adam{.lr = 0.01, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.1, .maximize = true}",
     torch.optim.Adam,
     {"lr": 0.01, "betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.1, "maximize": True, **PLAIN},
     ("exp_avg", "exp_avg_sq")),
    ("AMSGrad{.beta2 = 0.9}", torch.optim.Adam, {"betas": (0.9, 0.9), "amsgrad": True, **PLAIN},
     ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")),
    ("AMSGrad{.lr = 0.01, .beta2 = 0.7, .weight_decay = 0.1}", torch.optim.Adam,
     {"lr": 0.01, "betas": (0.9, 0.7), "weight_decay": 0.1, "amsgrad": True, **PLAIN},
     ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")),
    ("AMSGrad{.lr = 0.01, .beta2 = 0.7, .weight_decay = 0.1, .decoupled_weight_decay = true}",
     torch.optim.AdamW,
     {"lr": 0.01, "betas": (0.9, 0.7), "weight_decay": 0.1, "amsgrad": True, **PLAIN},
     ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")),
    ("NAdam{}", torch.optim.NAdam, {"foreach": True}, ("exp_avg", "exp_avg_sq")),
    ("NAdam{.lr = 0.01, .beta1 = 0.95, .beta2 = 0.98, .weight_decay = 0.1, .momentum_decay = 1.5}",
     torch.optim.NAdam,
     {"lr": 0.01, "betas": (0.95, 0.98), "weight_decay": 0.1, "momentum_decay": 1.5, "foreach": True},
     ("exp_avg", "exp_avg_sq")),
    ("RMSProp{}", torch.optim.RMSprop, PLAIN, ("square_avg",)),
    ("RMSProp{.alpha = 0.9, .eps = 1e-4, .weight_decay = 0.1}", torch.optim.RMSprop,
     {"alpha": 0.9, "eps": 1e-4, "weight_decay": 0.1, **PLAIN}, ("square_avg",)),
    ("RMSPropMomentum{.lr = 1e-3, .momentum = 0.9}", torch.optim.RMSprop,
     {"lr": 1e-3, "momentum": 0.9, **PLAIN}, ("square_avg", "momentum_buffer")),
    ("CenteredRMSProp{.alpha = 0.9}", torch.optim.RMSprop,
     {"alpha": 0.9, "centered": True, **PLAIN}, ("square_avg", "grad_avg")),
    ("CenteredRMSPropMomentum{.alpha = 0.8, .weight_decay = 0.1, .momentum = 0.5}",
     torch.optim.RMSprop,
     {"alpha": 0.8, "weight_decay": 0.1, "momentum": 0.5, "centered": True, **PLAIN},
     ("square_avg", "momentum_buffer", "grad_avg")),
]


def inputs():
    """Parameters of many sizes; gradients, one row a step, with zeros and large and small ones."""
    generator = torch.Generator().manual_seed(20)
    spread = torch.logspace(-4, 3, COUNT)
    parameters = torch.randn(COUNT, generator=generator) * spread
    gradients = torch.randn(STEPS, COUNT, generator=generator) * spread.flip(0)
    gradients[:, 3] = 0
    gradients[::2, 5] = 0
    return parameters, gradients


def rows_of(optimizer_class, arguments, states, start, gradients):
    p = torch.nn.Parameter(start.clone())
    optimizer = optimizer_class([p], **arguments)
    for step in range(1, STEPS + 1):
        p.grad = gradients[step - 1].clone()
        optimizer.step()
        if step in CHECKED:
            yield p.detach().clone()
            for name in states:
                yield optimizer.state[p][name].clone()


def row(values):
    return "{" + ", ".join(float(v).hex().replace("0000000p", "p") + "f" for v in values) + "}"


def table(rows):
    return "{{\n    " + ",\n    ".join("{" + row(values) + "}" for values in rows) + "}}"


def main(out=sys.stdout):
    parameters, gradients = inputs()
    print("// Written by tests/reference/generate.py.", file=out)
    print(f"using Row = std::array<float, {COUNT}>;", file=out)
    print("inline constexpr Row start{" + row(parameters) + "};", file=out)
    print(f"inline constexpr std::array<Row, {STEPS}> gradients" + table(gradients) + ";", file=out)
    cases = MOMENT_CASES if sys.argv[1:] == ["moments"] else CASES
    print("// check(functor, rows): parameters, then each state, after 1 and after 10 steps.", file=out)
    print("template <class Check>\nvoid for_each_case(const Check& check) {", file=out)
    for text, optimizer_class, arguments, states in cases:
        rows = list(rows_of(optimizer_class, arguments, states, parameters, gradients))
        print(f"  check({text}, std::array<Row, {len(rows)}>" + table(rows) + ");", file=out)
    print("}", file=out)


if __name__ == "__main__":
    main()
