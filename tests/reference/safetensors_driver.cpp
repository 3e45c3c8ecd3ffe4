// What our reader makes of files, and copies of them by our writer, for
// safetensors_differential.py.
//
//   safetensors_driver read FILE...       per file "accept" or "reject FAULT", then a line per
//   tensor:
//                                         name and bytes in hexadecimal, dtype, dimensions
//   safetensors_driver copy FROM TO       writes FROM's tensors and metadata anew
#include <flatshard/checkpoint/safetensors.hpp>
#include <flatshard/checkpoint/tensor_set.hpp>
#include <flatshard/io/file.hpp>

#include <cstddef>
#include <cstdio>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <vector>

using namespace flatshard::safetensors;
using flatshard::Bytes;
using flatshard::File;

namespace {

std::string hexadecimal(std::span<const std::byte> bytes) {
  constexpr char digits[] = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : bytes) {
    text += digits[std::to_integer<int>(byte >> 4)];
    text += digits[std::to_integer<int>(byte & std::byte{15})];
  }
  return text;
}

std::vector<std::byte> bytes_of(const TensorSet& set, const std::string& name) {
  const TensorEntry& entry = *set.at(name).entry;
  std::vector<std::byte> bytes(static_cast<std::size_t>(entry.end - entry.begin));
  set.read(name, 0, bytes);
  return bytes;
}

void print_tensor(const TensorSet& set, const TensorEntry& tensor) {
  const std::string name = hexadecimal(std::as_bytes(std::span(tensor.name)));
  std::printf("tensor '%s' %s", name.c_str(), std::string(name_of(tensor.type)).c_str());
  for (const std::int64_t dimension : tensor.shape)
    std::printf(" %lld", static_cast<long long>(dimension));
  std::printf(" : %s\n", hexadecimal(bytes_of(set, tensor.name)).c_str());
}

void read(const char* path) {
  try {
    const TensorSet set = TensorSet::open(path);
    std::printf("accept\n");
    for (const TensorEntry& tensor : set.files().at(0).header.tensors) print_tensor(set, tensor);
  } catch (const FormatError& error) {
    std::printf("reject %s\n", std::string(name_of(error.kind())).c_str());
  }
}

void copy(const char* from, const char* to) {
  const TensorSet set = TensorSet::open(from);
  const Header& source = set.files().at(0).header;
  std::vector<TensorSpec> tensors;
  for (const TensorEntry& tensor : source.tensors)
    tensors.push_back({tensor.name, tensor.type, tensor.shape});
  const Header header = plan_header(tensors, source.metadata);
  File file = File::create(to);
  const std::string beginning = encode(header);
  file.write(0, std::as_bytes(std::span(beginning)));
  for (const TensorEntry& tensor : header.tensors)
    file.write(header.data_begin + tensor.begin, bytes_of(set, tensor.name));
  file.close();
}

}  // namespace

int main(int argc, char** argv) try {
  const std::string_view command = argc > 1 ? argv[1] : "";
  if (command == "copy" && argc == 4) {
    copy(argv[2], argv[3]);
  } else if (command == "read") {
    for (int i = 2; i < argc; ++i) read(argv[i]);
  } else {
    std::fprintf(stderr, "usage: safetensors_driver read FILE... | copy FROM TO\n");
    return 2;
  }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "safetensors_driver: %s\n", error.what());
  return 1;
}
