"""Builds the bytes of safetensors files, good and bad."""
import struct


def file_of(header, data=b"", length=None):
    """The bytes of a file; `length` overrides the header's length as announced."""
    header = header.encode() if isinstance(header, str) else header
    return struct.pack("<Q", len(header) if length is None else length) + header + data


def entry(dtype="U8", shape="[4]", offsets="[0,4]"):
    return f'{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}'


def one(dtype="U8", shape="[4]", offsets="[0,4]", data=b"abcd", name="a"):
    """A file with one tensor."""
    return file_of(f'{{"{name}":{entry(dtype, shape, offsets)}}}', data)


def body(text, data=b"abcd"):
    """A file with one tensor `a` whose entry is the given JSON."""
    return file_of(f'{{"a":{text}}}', data)


def object_of(*members, data=b""):
    return file_of("{" + ",".join(members) + "}", data)


A = '"a":' + entry()  # four bytes at 0
B = '"b":' + entry(offsets="[4,8]")  # and the next four
