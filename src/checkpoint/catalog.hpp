// What files offer, without the files: rank 0 can tell the others.
#pragma once

#include <flatshard/checkpoint/tensor_set.hpp>
#include <flatshard/layout/model.hpp>

#include <map>
#include <string>

namespace flatshard::detail {

struct CatalogEntry {
  safetensors::StoredType type{};
  Shape shape;
  friend bool operator==(const CatalogEntry&, const CatalogEntry&) = default;
};

using Catalog = std::map<std::string, CatalogEntry, std::less<>>;

Catalog catalog_of(const safetensors::TensorSet& set);
/// catalog_from(to_text(c)) == c; for our own ranks only: not checked.
std::string to_text(const Catalog& catalog);
Catalog catalog_from(const std::string& text);

}  // namespace flatshard::detail
