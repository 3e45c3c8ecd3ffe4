"""Cases of single files: (name, bytes, strict verdict, options).

A verdict is "accept" or the fault. Options: compatible (verdict of the lenient mode), reference (what the
Python package says, where it differs from ours), what (a remark).
"""
from frame import A, B, body, entry, file_of, object_of, one

BIG = 2**63
DTYPES = [
    ("BOOL", 8), ("F4", 4), ("F6_E2M3", 6), ("F6_E3M2", 6), ("U8", 8), ("I8", 8), ("F8_E5M2", 8),
    ("F8_E4M3", 8), ("F8_E8M0", 8), ("F8_E4M3FNUZ", 8), ("F8_E5M2FNUZ", 8), ("I16", 16), ("U16", 16),
    ("F16", 16), ("BF16", 16), ("I32", 32), ("U32", 32), ("F32", 32), ("C64", 64), ("F64", 64), ("I64", 64),
    ("U64", 64),
]  # fmt: skip


def dtype_cases():
    """Four elements of each type, which is whole bytes for all of them."""
    for name, bits in DTYPES:
        data = bytes(range(bits * 4 // 8))
        varies = {} if bits >= 8 and "8_E8" not in name and "FNUZ" not in name and name != "C64" else {"reference": "varies"}
        yield f"dtype_{name.lower()}", one(name, "[4]", f"[0,{len(data)}]", data), "accept", varies


def accepted():
    yield "one_tensor", object_of(A, data=b"abcd"), {}
    yield "two_tensors", object_of(A, B, data=b"abcdefgh"), {}
    yield "nothing", file_of("{}"), {}
    yield "metadata_only", file_of('{"__metadata__":{"format":"pt"}}'), {}
    yield "metadata_empty", object_of('"__metadata__":{}', A, data=b"abcd"), {}
    yield "metadata_null", object_of('"__metadata__":null', A, data=b"abcd"), {}
    yield "metadata_last", object_of(A, '"__metadata__":{"k":""}', data=b"abcd"), {}
    yield "metadata_empty_key", object_of('"__metadata__":{"":"v"}', A, data=b"abcd"), {}
    yield "metadata_with_name_of_tensor", object_of('"__metadata__":{"a":"a"}', A, data=b"abcd"), {}
    yield "names_near_metadata", object_of(
        '"__metadata":' + entry(), '"__metadata___":' + entry(offsets="[4,8]"), data=b"abcdefgh"
    ), {}
    yield "scalar", one("F32", "[]"), {}
    yield "zero_elements", one("F32", "[0]", "[0,0]", b""), {}
    yield "zero_elements_between", object_of(A, B, '"z":' + entry("F32", "[3,0]", "[4,4]"), data=b"abcdefgh"), {}
    yield "zero_elements_at_both_ends", object_of(
        '"y":' + entry("F32", "[0]", "[4,4]"), A, '"z":' + entry("F32", "[0,2]", "[0,0]"), data=b"abcd"
    ), {}
    yield "zero_dimension_and_large_one", one("F32", f"[0,{2**62}]", "[0,0]", b""), {}
    yield "large_dimension_and_zero_one", one("F32", f"[{2**62},0]", "[0,0]", b""), {}
    yield "dimension_that_no_double_holds", one("U8", f"[{2**53 + 1},0]", "[0,0]", b""), {}
    yield "offsets_in_any_textual_order", object_of(B, A, data=b"abcdefgh"), {}
    yield "fields_in_any_order", body('{"data_offsets":[0,4],"shape":[4],"dtype":"U8"}'), {}
    yield "misaligned_f32", object_of(
        '"a":' + entry("U8", "[1]", "[0,1]"), '"b":' + entry("F32", "[1]", "[1,5]"), data=b"abcde"
    ), {"what": "hand out copies, never a typed pointer"}
    yield "odd_header_length", file_of("{" + A + "} ", b"abcd"), {}
    yield "spaces_behind", file_of("{" + A + "}" + " " * 99, b"abcd"), {}
    yield "other_white_space_behind", file_of("{" + A + "}\n\t\r ", b"abcd"), {}
    yield "white_space_before", file_of(" \n\t\r{" + A + "}", b"abcd"), {"reference": "varies"}
    yield "white_space_inside", file_of('{ "a" :\n{ "dtype": "U8", "shape": [ 4 ], "data_offsets": [ 0, 4 ] } }', b"abcd"), {}
    yield "name_of_utf8", one(name="gewicht.größe.層"), {}
    yield "name_of_escapes", one(name="\\u00e9\\ud83d\\ude00\\n\\/\\\\\\\""), {}
    yield "names_of_two_normal_forms", object_of(
        '"\u00e9":' + entry(), '"e\u0301":' + entry(offsets="[4,8]"), data=b"abcdefgh"
    ), {}
    yield "name_empty", one(name=""), {}
    yield "name_like_a_path", one(name="../../x"), {"what": "never use names as paths"}
    yield "name_of_control_escapes", one(name="\\u0001\\u001b\\u007f"), {}
    yield "name_of_4096_bytes", one(name="n" * 4096), {}
    yield "dimensions_8", one("U8", "[1,1,1,1,1,1,1,4]"), {}
    yield "dimensions_9", one("U8", "[1,1,1,1,1,1,1,1,4]"), {}
    yield "dimensions_64", one("U8", "[" + "1," * 63 + "4]"), {}
    yield "values_nan_and_infinity", one("F32", "[2]", "[0,8]", bytes.fromhex("0000c07f0000807f")), {}


def frames():
    yield "file_empty", b"", "HeaderTooSmall"
    yield "file_of_1_byte", b"\x02", "HeaderTooSmall"
    yield "file_of_7_bytes", b"\x02" + bytes(6), "HeaderTooSmall"
    yield "header_empty", bytes(8), "InvalidJson"
    for name, length in [("2_64_minus_1", 2**64 - 1), ("2_64_minus_8", 2**64 - 8), ("2_63", BIG), ("100000001", 10**8 + 1)]:
        yield f"header_length_{name}", file_of("{}", length=length), "HeaderTooLarge"
    yield "header_length_100000000", file_of("{}", length=10**8), "InvalidHeaderLength"
    yield "header_length_past_end", file_of("{}", length=1000), "InvalidHeaderLength"
    yield "header_length_one_past_end", file_of("{}", length=3), "InvalidHeaderLength"


# JSON that is none; {A} is the good entry.
BROKEN = {
    "spaces": "    ", "open": "{", "half": '{"a":{"dtype":"U8"', "trailing_comma": "{" + A + ",}",
    "comma_in_shape": '{"a":' + entry(shape="[4,]") + "}", "single_quotes": "{'a':1}", "key_bare": "{a:1}",
    "colon_missing": '{"a" {}}', "comment": "{" + A + "/* */}", "comment_before": "//\n{" + A + "}",
    "text_behind": "{" + A + "}x", "object_behind": "{" + A + "}{}", "bracket_behind": "{" + A + "}]",
    "nul_behind": "{" + A + "}\0", "nul_and_text_behind": "{" + A + "}\0x", "nul_before": "\0{" + A + "}",
    "nul_inside": "{\0" + A + "}", "byte_order_mark": "\ufeff{" + A + "}", "form_feed": "\f{" + A + "}",
    "no_break_space": "{" + A + "}\u00a0", "raw_control_in_name": '{"a\x01":' + entry() + "}",
    "raw_newline_in_name": '{"a\n":' + entry() + "}", "raw_nul_in_name": '{"a\0":' + entry() + "}",
    "lone_high_surrogate": '{"\\ud800":' + entry() + "}", "lone_low_surrogate": '{"\\udc00":' + entry() + "}",
    "surrogates_swapped": '{"\\udc00\\ud800":' + entry() + "}", "escape_unknown": '{"\\x41":' + entry() + "}",
    "escape_short": '{"\\u41":' + entry() + "}", "string_open": '{"a', "number_with_leading_zero": "{\"a\":" + entry(shape="[04]") + "}",
    "number_hexadecimal": '{"a":' + entry(shape="[0x4]") + "}", "number_with_plus": '{"a":' + entry(shape="[+4]") + "}",
    "number_nan": '{"a":' + entry(shape="[NaN]") + "}", "number_of_minus": '{"a":' + entry(shape="[-]") + "}",
    "number_with_point": '{"a":' + entry(shape="[4.]") + "}", "mixed_brackets": '{"a":' + entry(shape="[4}") + "}",
    "number_10_400": '{"a":' + entry(shape="[1" + "0" * 400 + "]") + "}", "word": "{" + A + ',"b":nul}',
}  # fmt: skip

NOT_UTF8 = {
    "ff": b"\xff", "continuation": b"\x80", "overlong_2": b"\xc0\xaf", "overlong_3": b"\xe0\x80\xaf",
    "overlong_4": b"\xf0\x80\x80\xaf", "surrogate": b"\xed\xa0\x80", "above_10ffff": b"\xf4\x90\x80\x80",
    "five_bytes": b"\xf8\x88\x80\x80\x80", "cut_2": b"\xc3", "cut_3": b"\xe2\x82", "cut_4": b"\xf0\x9f\x98",
}  # fmt: skip


def broken_json():
    for name, text in BROKEN.items():
        yield f"json_{name}", file_of(text, b"abcd"), "InvalidJson"
    for name, raw in NOT_UTF8.items():
        good = ("{" + A + "}").encode()
        yield f"utf8_{name}", file_of(good.replace(b'"a"', b'"a' + raw + b'"'), b"abcd"), "InvalidJson"
    yield "utf8_ff_outside_of_strings", file_of(b"\xff{" + A.encode() + b"}", b"abcd"), "InvalidJson"


def wrong_types():
    for name, text in [("array", "[]"), ("string", '"x"'), ("null", "null"), ("number", "5"), ("true", "true"), ("real", "1.5"), ("negative", "-1"), ("nested_arrays", "[" * 200 + "]" * 200)]:
        yield f"root_{name}", file_of(text), {}
    for name, text in [("null", "null"), ("number", "5"), ("string", '"U8"'), ("true", "true"), ("empty_array", "[]")]:
        yield f"entry_{name}", body(text), {}
    yield "entry_positional", body('["U8",[4],[0,4]]'), {"reference": "accept"}
    for name, text in [("null", "null"), ("number", "4"), ("array", "[]"), ("true", "true"), ("real", "0.5")]:
        yield f"dtype_is_{name}", body(f'{{"dtype":{text},"shape":[4],"data_offsets":[0,4]}}'), {}
    yield "dtype_is_object", body('{"dtype":{"U8":null},"shape":[4],"data_offsets":[0,4]}'), {"reference": "accept"}
    for name, text in [("null", "null"), ("number", "4"), ("object", "{}"), ("string", '"4"'), ("false", "false"), ("negative", "-4")]:
        yield f"shape_is_{name}", body(entry(shape=text)), {}
    for name, text in [("null", "null"), ("string", '"4"'), ("true", "true"), ("array", "[4]"), ("object", "{}")]:
        yield f"dimension_is_{name}", body(entry(shape=f"[{text}]")), {}
    for name, text in [("null", "null"), ("number", "4"), ("object", '{"begin":0,"end":4}'), ("string", '"0,4"')]:
        yield f"offsets_are_{name}", body(entry(offsets=text)), {}
    for name, text in [("null", "null"), ("string", '"4"'), ("array", "[4]"), ("false", "false"), ("object", "{}")]:
        yield f"offset_is_{name}", body(entry(offsets=f"[0,{text}]")), {}
    for name, text in [("array", "[]"), ("string", '"pt"'), ("number", "1"), ("true", "true")]:
        yield f"metadata_is_{name}", object_of(f'"__metadata__":{text}', A, data=b"abcd"), {}
    for name, text in [("number", "1"), ("null", "null"), ("true", "true"), ("array", "[]"), ("object", "{}"), ("real", "1.5"), ("negative", "-1")]:
        yield f"metadata_value_is_{name}", object_of(f'"__metadata__":{{"k":{text}}}', A, data=b"abcd"), {}


def duplicates():
    yield "same_offsets", object_of(A, A, data=b"abcd"), "accept"
    yield "same_offsets_other_shape", object_of(A, '"a":' + entry(shape="[2,2]"), data=b"abcd"), "accept"
    yield "one_escaped", object_of(A, '"\\u0061":' + entry(), data=b"abcd"), "accept"
    yield "chained_offsets", object_of(A, '"a":' + entry(offsets="[4,8]"), data=b"abcdefgh"), "reject"
    yield "not_neighbours", object_of(A, B, A, data=b"abcdefgh"), "accept"
    yield "in_metadata", object_of('"__metadata__":{"k":"1","k":"2"}', A, data=b"abcd"), "accept"
    yield "in_metadata_escaped", object_of('"__metadata__":{"k":"1","\\u006b":"1"}', A, data=b"abcd"), "accept"
    yield "metadata", object_of('"__metadata__":{}', A, '"__metadata__":{}', data=b"abcd"), "reject"
    for field in ['"dtype":"U8"', '"shape":[4]', '"data_offsets":[0,4]']:
        name = field.split('"')[1]
        yield name, body(f'{{{field},"dtype":"U8","shape":[4],"data_offsets":[0,4]}}'), "reject"


def unknown_fields():
    def with_field(text):
        return body('{"dtype":"U8","shape":[4],"data_offsets":[0,4],' + text + "}")

    lenient = {"compatible": "accept", "reference": "accept"}
    for name, value in [("number", "1"), ("null", "null"), ("true", "true"), ("real", "-1.5e3"), ("negative", "-1"), ("string", '"x"'), ("nested", '[{"dtype":[["F32"]]},{"shape":{}},5]')]:
        yield f"field_unknown_{name}", with_field(f'"x":{value}'), "UnknownField", lenient
    yield "field_of_other_case", with_field('"Shape":[4]'), "UnknownField", lenient
    yield "field_unknown_first", body('{"x":[],"dtype":"U8","shape":[4],"data_offsets":[0,4]}'), "UnknownField", lenient
    yield "field_unknown_twice", with_field('"x":1,"x":1'), "UnknownField", {"compatible": "DuplicateKey", "reference": "accept"}
    yield "field_unknown_with_duplicate", with_field('"x":{"y":1,"y":1}'), "UnknownField", {"compatible": "DuplicateKey", "reference": "accept"}
    deep = with_field('"x":' + "[" * 6 + "]" * 6)
    yield "field_unknown_of_depth_8", deep, "UnknownField", lenient
    deeper = with_field('"x":' + "[" * 7 + "]" * 7)
    yield "field_unknown_of_depth_9", deeper, "UnknownField", {"compatible": "TooDeep", "reference": "accept"}
    yield "field_unknown_of_depth_9_in_objects", with_field('"x":' + '{"y":' * 7 + "1" + "}" * 7), "UnknownField", {"compatible": "TooDeep", "reference": "accept"}


def missing_fields():
    yield "all", body("{}")
    yield "dtype", body('{"shape":[4],"data_offsets":[0,4]}')
    yield "shape", body('{"dtype":"U8","data_offsets":[0,4]}')
    yield "shape_of_scalar", body('{"dtype":"F32","data_offsets":[0,4]}')
    yield "data_offsets", body('{"dtype":"U8","shape":[4]}')
    yield "data_offsets_of_nothing", body('{"dtype":"U8","shape":[0]}', b"")
    yield "dtype_after_another_tensor", object_of(A, '"b":{"shape":[4],"data_offsets":[4,8]}', data=b"abcdefgh")


NUMBERS = {
    "minus_1": "-1", "minus_0": "-0", "with_fraction": "4.0", "with_exponent": "4e0", "2_63": str(2**63), "2_64": str(2**64),
}  # fmt: skip


def numbers():
    for name, text in NUMBERS.items():
        yield f"dimension_{name}", one("U8", f"[{text}]"), {}
        yield f"offset_{name}", one("U8", "[4]", f"[0,{text}]"), {}
    yield "dimension_2_63_behind_zero", one("U8", f"[0,{2**63}]", "[0,0]", b""), {"reference": "accept"}
    yield "offset_minus_0_at_begin", one("U8", "[4]", "[-0,4]"), {}


def tensors():
    yield "name_with_nul", one(name="a\\u0000b"), "InvalidName", {"reference": "accept"}
    yield "name_of_4097_bytes", one(name="n" * 4097), "InvalidName", {"reference": "accept"}
    yield "dimensions_65", one("U8", "[" + "1," * 64 + "4]"), "TooManyDimensions", {"reference": "accept"}
    for name, dtype in [("lower_case", "u8"), ("unknown", "F128"), ("empty", ""), ("with_space", "U8 "), ("of_torch", "torch.uint8")]:
        yield f"dtype_{name}", one(dtype), "UnknownType", {}
    for name, shape in [("to_zero", [2**32, 2**32]), ("to_16_bytes", [4194305, 4194305, 211106198978564]), ("of_elements", [2**62, 2]), ("of_elements_at_once", [2**62, 4])]:
        yield f"shape_overflows_{name}", one("F32", str(shape), "[0,16]", b"x" * 16), "ShapeOverflow", {}
    yield "shape_overflows_in_bits", one("F32", f"[{2**61}]", "[0,4]"), "ShapeOverflow", {}
    yield "shape_overflows_in_bits_to_4_bytes", one("F64", f"[{2**58 + 1}]", "[0,8]", b"x" * 8), "ShapeOverflow", {"reference": "reject"}
    yield "shape_overflows_before_zero", one("U8", f"[{2**62},{2**62},0]", "[0,0]", b""), "ShapeOverflow", {}
    yield "shape_overflows_behind_zero", one("U8", f"[0,{2**62},{2**62}]", "[0,0]", b""), "ShapeOverflow", {"reference": "accept"}
    for name, dtype, shape in [("f4", "F4", "[1]"), ("f4_of_3", "F4", "[3]"), ("f6", "F6_E2M3", "[1]"), ("f6_of_2", "F6_E3M2", "[2]")]:
        yield f"misaligned_{name}", one(dtype, shape, "[0,1]", b"x"), "Misaligned", {}
    yield "size_too_small", one("U8", "[5]"), "SizeMismatch", {}
    yield "size_too_large", one("U8", "[3]"), "SizeMismatch", {}
    yield "size_of_other_dtype", one("F16", "[4]"), "SizeMismatch", {}
    yield "size_of_scalar", one("U8", "[]"), "SizeMismatch", {}
    yield "size_of_nothing", one("U8", "[0]"), "SizeMismatch", {}
    yield "size_zero_of_something", one("U8", "[4]", "[0,0]", b""), "SizeMismatch", {}
    yield "size_of_dimensions_8_is_checked", one("F32", "[1,1,1,1,1,1,1,1]", f"[0,{2**40}]", b"x" * 16), "SizeMismatch", {}


def offsets():
    yield "none", one(offsets="[]")
    yield "one", one(offsets="[4]")
    yield "three", one(offsets="[0,4,8]")
    yield "reversed", one(offsets="[4,0]")
    yield "reversed_far", one(shape="[0]", offsets=f"[{2**62},0]")
    yield "overlap", object_of(A, '"b":' + entry(offsets="[2,6]"), data=b"abcdef")
    yield "shared", object_of(A, '"b":' + entry(), data=b"abcd")
    yield "hole", object_of(A, '"b":' + entry(offsets="[5,9]"), data=b"abcdefghi")
    yield "hole_at_begin", one(offsets="[1,5]", data=b"abcde")
    yield "past_end", one(offsets=f"[{2**40},{2**40 + 4}]")
    yield "at_the_largest_number", one(offsets=f"[{2**63 - 5},{2**63 - 1}]")
    yield "zero_elements_inside", object_of(A, '"z":' + entry("U8", "[0]", "[2,2]"), data=b"abcd")
    yield "zero_elements_behind_the_end", object_of(A, '"z":' + entry("U8", "[0]", "[8,8]"), data=b"abcd")


def buffers():
    yield "truncated_by_1", object_of(A, B, data=b"abcdefg")
    yield "appended_1", object_of(A, B, data=b"abcdefghi")
    yield "appended_archive", object_of(A, data=b"abcdPK\x05\x06" + bytes(18))
    yield "without_data", object_of(A, data=b"")
    yield "without_tensors", file_of("{}", b"abcd")
    yield "metadata_only_and_data", file_of('{"__metadata__":{}}', b"x" * 64)


def file_cases():
    for name, content, options in accepted():
        yield name, content, "accept", options
    yield from dtype_cases()
    for name, content, fault in [*frames(), *broken_json()]:
        yield name, content, fault, {}
    for name, content, options in wrong_types():
        yield name, content, "WrongType", options
    for name, content, reference in duplicates():
        yield f"duplicate_{name}", content, "DuplicateKey", {"reference": reference}
    yield from unknown_fields()
    for name, content in missing_fields():
        yield f"missing_{name}", content, "MissingField", {}
    for name, content, options in numbers():
        yield name, content, "InvalidNumber", options
    yield from tensors()
    for name, content in offsets():
        yield f"offsets_{name}", content, "InvalidOffset", {}
    for name, content in buffers():
        yield f"data_{name}", content, "IncompleteBuffer", {}
