"""Cases of indexes and of sharded sets."""
import json

from frame import entry, file_of

ONE, TWO = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


def index(weight_map, metadata='{"total_size":8}'):
    """An index's JSON from texts: order and duplicates are as given."""
    return f'{{"metadata":{metadata},"weight_map":{weight_map}}}'


GOOD_MAP = f'{{"a":"{ONE}","b":"{TWO}"}}'


def mapped_to(name):
    return index('{"a":' + json.dumps(name) + "}")


def index_cases():
    """(name, text, verdict)"""
    yield "good", index(GOOD_MAP), "accept"
    yield "good_indented", json.dumps(json.loads(index(GOOD_MAP)), indent=2) + "\n", "accept"
    yield "empty_map", index("{}"), "accept"
    yield "without_metadata", f'{{"weight_map":{GOOD_MAP}}}', "accept"
    yield "without_total_size", index(GOOD_MAP, "{}"), "accept"
    yield "other_metadata", index(GOOD_MAP, '{"total_size":8,"x":[1,{"y":null}],"z":-1.5,"t":true}'), "accept"
    yield "other_fields", f'{{"x":{{"weight_map":[]}},"n":null,"weight_map":{GOOD_MAP},"m":[[]],"i":-1}}', "accept"
    yield "name_of_255_bytes", mapped_to("n" * 255), "accept"
    yield "name_with_dots", mapped_to("..model..safetensors"), "accept"
    for name, file in [("absolute", "/etc/passwd"), ("parent", "../x"), ("parent_inside", "a/../../x"), ("folder", "a/x"), ("backslash", "a\\..\\x"), ("nul", "a\0b"), ("dot", "."), ("dot_dot", ".."), ("empty", ""), ("long", "n" * 256), ("drive", "C:\\x")]:
        yield f"file_name_{name}", mapped_to(file), "InvalidFileName"
    for name, text in [("array", "[]"), ("null", "null"), ("number", "8"), ("string", '"a"')]:
        yield f"root_{name}", text, "WrongType"
        yield f"map_{name}", index(text), "WrongType"
        yield f"metadata_{name}", index(GOOD_MAP, text), "WrongType"
    for name, text in [("array", "[]"), ("null", "null"), ("number", "8"), ("object", "{}"), ("true", "true"), ("real", "1.5"), ("negative", "-1")]:
        yield f"file_{name}", index(f'{{"a":{text}}}'), "WrongType"
    for name, text in [("string", '"8"'), ("null", "null"), ("object", "{}"), ("array", "[8]"), ("true", "true")]:
        yield f"total_size_{name}", index(GOOD_MAP, f'{{"total_size":{text}}}'), "WrongType"
    for name, text in [("negative", "-8"), ("real", "8.0"), ("2_63", str(2**63)), ("2_64", str(2**64))]:
        yield f"total_size_{name}", index(GOOD_MAP, f'{{"total_size":{text}}}'), "InvalidNumber"
    yield "without_map", '{"metadata":{"total_size":8}}', "MissingField"
    yield "duplicate_tensor", index(f'{{"a":"{ONE}","a":"{TWO}"}}'), "DuplicateKey"
    yield "duplicate_tensor_escaped", index(f'{{"a":"{ONE}","\\u0061":"{ONE}"}}'), "DuplicateKey"
    yield "duplicate_map", f'{{"weight_map":{{}},"weight_map":{GOOD_MAP}}}', "DuplicateKey"
    yield "duplicate_total_size", index(GOOD_MAP, '{"total_size":8,"total_size":8}'), "DuplicateKey"
    yield "tensor_name_with_nul", index(f'{{"a\\u0000":"{ONE}"}}'), "InvalidName"
    yield "tensor_name_of_4097_bytes", index(f'{{"{"n" * 4097}":"{ONE}"}}'), "InvalidName"
    yield "too_deep", index(GOOD_MAP, '{"x":' + "[" * 7 + "]" * 7 + "}"), "TooDeep"
    for name, text in [("empty", ""), ("open", "{"), ("nul_behind", index(GOOD_MAP) + "\0"), ("text_behind", index(GOOD_MAP) + "x"), ("byte_order_mark", "\ufeff" + index(GOOD_MAP)), ("trailing_comma", "{" + f'"weight_map":{GOOD_MAP},' + "}")]:
        yield f"json_{name}", text, "InvalidJson"


def shard(*names):
    entries = [f'"{name}":' + entry(offsets=f"[{4 * i},{4 * i + 4}]") for i, name in enumerate(names)]
    return file_of("{" + ",".join(entries) + "}", "".join(4 * name for name in names).encode())


def set_cases():
    """(name, {file: content}, verdict, warnings)"""
    index_name = "model.safetensors.index.json"

    def folder(text, **shards):
        files = {index_name: text.encode()}
        return files | {{"one": ONE, "two": TWO}.get(key, key + ".safetensors"): content for key, content in shards.items()}

    good = index(GOOD_MAP)
    a, b = shard("a"), shard("b")
    yield "single", {"model.safetensors": shard("a", "b")}, "accept", 0
    yield "good", folder(good, one=a, two=b), "accept", 0
    yield "single_wins", folder("{", one=a) | {"model.safetensors": a}, "accept", 0
    yield "other_file_beside", folder(good, one=a, two=b, other=b"junk"), "accept", 0
    yield "names_without_count", folder(index('{"a":"x.safetensors","b":"y.safetensors"}'), x=a, y=b), "accept", 0
    odd = ("x-of-00009.safetensorZ", "-of-0000x.safetensors")
    named = index(json.dumps({"a": odd[0], "b": odd[1]})).encode()
    yield "names_that_only_look_counted", {index_name: named, odd[0]: a, odd[1]: b}, "accept", 0
    yield "total_size_wrong", folder(index(GOOD_MAP, '{"total_size":9}'), one=a, two=b), "accept", 1
    yield "total_size_absent", folder(index(GOOD_MAP, "{}"), one=a, two=b), "accept", 1
    yield "empty", {"other.safetensors": a}, "MissingFile", 0
    yield "shard_missing", folder(good, one=a), "MissingFile", 0
    yield "tensor_missing", folder(good, one=a, two=shard("c")), "MissingTensor", 0
    yield "tensor_unmapped", folder(good, one=a, two=shard("b", "c")), "UnmappedTensor", 0
    yield "tensor_in_both", folder(good, one=a, two=shard("b", "a")), "UnmappedTensor", 0
    yield "tensors_swapped", folder(good, one=b, two=a), "MissingTensor", 0
    yield "count_too_large", folder(index(f'{{"a":"{ONE}"}}'), one=a), "FileCountMismatch", 0
    three = {name.replace("-of-00002", "-of-00001"): content for name, content in folder("", one=a, two=b).items()}
    three[index_name] = good.replace("-of-00002", "-of-00001").encode()
    yield "count_too_small", three, "FileCountMismatch", 0
    yield "index_broken", folder("{", one=a, two=b), "InvalidJson", 0
    yield "shard_truncated", folder(good, one=a, two=b[:-1]), "IncompleteBuffer", 0
