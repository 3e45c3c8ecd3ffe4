#include "catalog.hpp"

#include <cstring>

namespace flatshard::detail {

namespace {

void put(std::string& text, std::int64_t number) {
  text.append(reinterpret_cast<const char*>(&number), sizeof number);
}

std::int64_t take(const std::string& text, std::size_t& at) {
  std::int64_t number = 0;
  std::memcpy(&number, &text[at], sizeof number);
  at += sizeof number;
  return number;
}

}  // namespace

Catalog catalog_of(const safetensors::TensorSet& set) {
  Catalog catalog;
  for (const auto& [name, tensor] : set.tensors())
    catalog[name] = {tensor.entry->type, tensor.entry->shape};
  return catalog;
}

std::string to_text(const Catalog& catalog) {
  std::string text;
  for (const auto& [name, entry] : catalog) {
    put(text, static_cast<std::int64_t>(name.size()));
    text += name;
    put(text, static_cast<std::int64_t>(entry.type));
    put(text, static_cast<std::int64_t>(entry.shape.size()));
    for (const std::int64_t dimension : entry.shape) put(text, dimension);
  }
  return text;
}

Catalog catalog_from(const std::string& text) {
  Catalog catalog;
  std::size_t at = 0;
  while (at < text.size()) {
    const auto length = static_cast<std::size_t>(take(text, at));
    CatalogEntry& entry = catalog[text.substr(at, length)];
    at += length;
    entry.type = static_cast<safetensors::StoredType>(take(text, at));
    entry.shape.resize(static_cast<std::size_t>(take(text, at)));
    for (std::int64_t& dimension : entry.shape) dimension = take(text, at);
  }
  return catalog;
}

}  // namespace flatshard::detail
