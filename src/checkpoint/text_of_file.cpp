#include "text_of_file.hpp"

#include <algorithm>
#include <cstddef>
#include <span>

namespace flatshard::detail {
namespace {

constexpr Bytes piece_bytes = Bytes{1} << 20;

}  // namespace

std::string text_of_file(const File& file, Bytes offset, Bytes bytes) {
  std::string text;
  for (Bytes done = 0; done < bytes;) {
    const Bytes piece = std::min(piece_bytes, bytes - done);
    text.resize(static_cast<std::size_t>(done + piece));
    const auto all = std::as_writable_bytes(std::span(text));
    file.read(offset + done, all.subspan(static_cast<std::size_t>(done)));
    done += piece;
  }
  return text;
}

}  // namespace flatshard::detail
