#!/usr/bin/env python3
"""flatshard translate and flatshard plan on files that no trainer wrote: each is refused within seconds, by one short
line, with exit code 2 (what cannot be meant) or 3 (what cannot be read), and nothing on standard output.

Usage: hostile_test.py FLATSHARD
"""
import pathlib
import re
import subprocess
import sys
import tempfile

FLATSHARD = str(pathlib.Path(sys.argv[1]).resolve())
MANY = 100000
FSDP = b"distributed_type: FSDP\nfsdp_config:\n"
DEEPSPEED = b"distributed_type: DEEPSPEED\ndeepspeed_config:\n"


def many_keys(separator, entry):
    return separator.join(entry % i for i in range(MANY)).encode()


# Name, bytes, exit code, words of the complaint.
FILES = [
    ("empty.yaml", b"", 2, "must be a map"),
    ("empty.json", b"", 2, "end of input"),
    ("zeros.yaml", bytes(64), 2, ""),
    ("zeros.json", bytes(64), 2, ""),
    ("binary.yaml", bytes(range(256)) * 20, 2, ""),
    ("binary.json", bytes(range(255, -1, -1)) * 20, 2, ""),
    ("utf16.json", '{"bf16": {}}'.encode("utf-16"), 2, ""),
    ("wrong-utf8.json", b'{"bf\xff16": {}}', 2, "UTF-8"),
    ("large.json", b" " * (16 * 1024 * 1024 + 1), 3, "larger than 16777216 bytes"),
    ("deep.json", b"[" * 100000 + b"]" * 100000, 2, "more than 100 levels"),
    ("deep-maps.json", b'{"a":' * 100000 + b"1" + b"}" * 100000, 2, "more than 100 levels"),
    ("deep.yaml", b"[" * 5000 + b"]" * 5000, 2, "line 1"),
    ("deep-maps.yaml", b"\n".join(b" " * i + b"a:" for i in range(150)), 2, "too large or too deep"),
    ("laughs.yaml", b"a: &a [x,x,x,x,x,x,x,x,x]\n" + b"".join(
        b"%c: &%c [%s]\n" % (98 + i, 98 + i, b",".join([b"*%c" % (97 + i)] * 9)) for i in range(9)), 2, "too large or too deep"),
    ("itself.yaml", b"&a {distributed_type: *a}\n", 2, "too large or too deep"),
    ("many.json", b"{" + many_keys(",", '"k%d":1') + b"}", 2, "k0 is not a key"),
    ("many.yaml", many_keys("\n", "k%d:").replace(b":", b": 1")[:500000], 2, ""),
    ("last-twice.json", b"{" + many_keys(",", '"k%d":1') + b',"k7":2}', 2, "'k7' is given twice"),
    ("long.json", b'{"' + b"k" * 1000000 + b'": 1}', 2, r"kkk\.\.\. is not a key"),
    ("long-value.yaml", FSDP + b"  fsdp_offload_params: " + b"y" * 1000000 + b"\n", 2, "must be true or false"),
    ("long-twice.json", b'{"' + b"k" * 1000000 + b'": 1, "' + b"k" * 1000000 + b'": 1}', 2, "is given twice"),
    ("escape.json", b'{"\\u001b[31mred": 1}', 2, "u001b"),
    ("line-break.json", b'{"a\\nb": 1}', 2, "u000a"),
    ("null.json", b"null", 2, "must be a map"),
    ("infinite.json", b'{"gradient_clipping": 1e999}', 2, "overflow"),
    ("nan.json", b'{"gradient_clipping": NaN}', 2, "parse error"),
    ("nan.yaml", DEEPSPEED + b"  gradient_clipping: .nan\n", 2, "must be a number"),
    ("huge.json", b'{"zero_optimization": {"stage": 3, "stage3_max_live_parameters": 99999999999999999999999}}', 2,
     "stage3_max_live_parameters must be at most"),
    ("huge.yaml", b"distributed_type: FSDP\nnum_processes: 99999999999999999999\n", 2, "num_processes must be at most 1048576, not 1e\\+20"),
    ("product.json", b'{"train_batch_size": 1, "train_micro_batch_size_per_gpu": 9223372036854775807}', 2,
     "train_micro_batch_size_per_gpu must be at most"),
    ("power.json", b'{"fp16": {"enabled": true, "initial_scale_power": 4000000000}}', 2, "must be at most 126"),
    ("tag.yaml", FSDP + b"  fsdp_version: !!python/object/apply:os.system [ls]\n", 2, "fsdp_version"),
    ("list-key.yaml", b"? [a]\n: 1\n", 2, "a key must be a word"),
    ("merge.yaml", DEEPSPEED + b"  <<: {zero_stage: 3}\n", 2, "<< is not a key"),
    ("itself-by-file.yaml", DEEPSPEED + b"  deepspeed_config_file: itself-by-file.yaml\n", 2, "parse error"),
    ("no-file.yaml", DEEPSPEED + b"  deepspeed_config_file: no.json\n", 3, "no.json cannot be opened"),
    ("folder.yaml", DEEPSPEED + b"  deepspeed_config_file: .\n", 3, "directory"),
    ("endless.yaml", DEEPSPEED + b"  deepspeed_config_file: /dev/zero\n", 3, "larger than"),
    ("nulls.json", b'{"zero_optimization": null, "bf16": null, "fp16": null, "nonsense": null}', 2, "nonsense is not a key"),
    ("both-names.json", b'{"bf16": {"enabled": true}, "bfloat16": {"enabled": true}}', 2, "bfloat16 is the older name of bf16"),
    ("two-names.yaml", FSDP + b"  fsdp_backward_prefetch: BACKWARD_PRE\n  fsdp_backward_prefetch_policy: NO_PREFETCH\n", 2,
     "contradicts fsdp_backward_prefetch"),
    ("number.yaml", FSDP + b"  fsdp_version: 2\n  fsdp_reshard_after_forward: 4\n", 2, "FullShardSecondary.*shard_group 4"),
]
# What is odd and is meant all the same.
MEANT = [
    ("crlf.yaml", FSDP.replace(b"\n", b"\r\n") + b"  fsdp_sharding_strategy: FULL_SHARD\r\n"),
    ("mark.json", b'\xef\xbb\xbf{"bf16": {"enabled": true}}'),
    ("nothing.json", b"{}"),
    ("nulls.json", b'{"zero_optimization": null, "bf16": null, "bfloat16": null, "optimizer": null, "gradient_clipping": null}'),
    ("nulls.yaml", FSDP + b"  fsdp_backward_prefetch: null\n  fsdp_sharding_strategy: null\n  fsdp_reshard_after_forward:\n"),
    ("tabs.json", b'\t{\t"bf16"\t:\t{}\t}\t'),
]
# Shapes for flatshard plan.
SHAPES = [
    ("empty.json", b"", 2, ""),
    ("binary.json", bytes(range(256)), 2, ""),
    ("twice.json", b"{" + many_keys(",", '"k%d":[1]') + b',"k7":[1]}', 2, "'k7' is given twice"),
    ("deep.json", b"[" * 100000, 2, "more than 100 levels"),
    ("large.json", b"[[4611686018427387904, 4611686018427387904]]", 2, ""),
    ("negative.json", b"[[-1]]", 2, ""),
    ("fraction.json", b"[[1.5]]", 2, ""),
]


def faults_of(folder, name, text, code, words, arguments):
    path = folder / name
    path.write_bytes(text)
    try:
        done = subprocess.run([FLATSHARD, *arguments, path.name], capture_output=True, cwd=folder, timeout=20)
    except subprocess.TimeoutExpired:
        return [f"{name}: took more than 20 s"]
    error = done.stderr.decode("utf-8", "replace")
    if done.returncode != code:
        return [f"{name}: ended with {done.returncode}, not {code}: {error[:300]}"]
    if code == 0:
        return [f"{name}: {error[:300]}"] if error or not done.stdout else []
    if done.stdout or error.count("\n") != 1 or len(error) > 600 or not error[:-1].isprintable():
        return [f"{name}: the complaint is no short line: {error[:300]!r}"]
    return [] if re.search(words, error) else [f"{name}: '{words}' is not in: {error[:300]}"]


def main():
    with tempfile.TemporaryDirectory() as place:
        folder, faults = pathlib.Path(place), []
        for name, text, code, words in FILES:
            faults += faults_of(folder, name, text, code, words, ["translate"])
        for name, text in MEANT:
            faults += faults_of(folder, name, text, 0, "", ["translate"])
        for name, text, code, words in SHAPES:
            faults += faults_of(folder, name, text, code, words, ["plan", "--world", "4", "--shapes"])
    for fault in faults:
        print(fault)
    print(f"{len(FILES) + len(MEANT) + len(SHAPES)} files, {len(faults)} faults")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
