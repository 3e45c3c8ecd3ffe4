#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>

#include "commands.hpp"
#include "elements.hpp"
#include "progress.hpp"
#include "source.hpp"
#include "value.hpp"

namespace flatshard_tool {
namespace {

using flatshard::Bytes;
using safetensors::TensorEntry;

/// A tensor of a source and the set that reads it.
struct Held {
  const Part* part;
  safetensors::StoredTensor tensor;
  const TensorEntry& entry() const { return *tensor.entry; }
};

/// Names are unique within a part; a state of the optimizer may be named as a parameter.
using Names = std::map<std::pair<std::string, std::string>, Held>;

Names names_of(const Source& source) {
  Names names;
  for (const Part& part : source.parts)
    for (const auto& [name, tensor] : part.set.tensors())
      names.emplace(std::pair(part.name, name), Held{&part, tensor});
  return names;
}

enum class Verdict { OnlyInA, OnlyInB, OtherShape, OtherBytes, OtherValues, OtherDType, Equal };

struct Finding {
  std::string name;
  Verdict verdict = Verdict::Equal;
  const TensorEntry *a = nullptr, *b = nullptr;
  Differences differences;
};

const char* word_of(Verdict verdict) {
  constexpr const char* words[] = {"only in A",    "only in B",     "shape differs",
                                   "bytes differ", "values differ", "dtype differs",
                                   "equal"};
  return words[static_cast<int>(verdict)];
}

/// Compares two tensors of one shape part by part.
class Comparison {
 public:
  Comparison(const Held& a, const Held& b) : a_(a), b_(b) {}

  Finding run(const std::string& name, Progress& progress) {
    Finding finding{name, Verdict::Equal, &a_.entry(), &b_.entry(), {}};
    const auto& info_a = safetensors::info(a_.entry().type);
    const auto& info_b = safetensors::info(b_.entry().type);
    const bool same_type = info_a.type == info_b.type;
    const bool numbers = info_a.dtype && info_b.dtype;
    if (same_type || numbers) compare_parts(finding, progress);
    if (!same_type) finding.verdict = Verdict::OtherDType;
    if (same_type && !equal_bits_)
      finding.verdict = numbers ? Verdict::OtherValues : Verdict::OtherBytes;
    return finding;
  }

 private:
  static constexpr Bytes part_elements = Bytes{1} << 20;

  std::span<const std::byte> read(const Held& held, Bytes bits, Bytes first, Bytes count,
                                  std::vector<std::byte>& into) {
    into.resize(static_cast<std::size_t>(count * bits / 8));
    held.part->set.read(held.tensor, first * bits / 8, into);
    return into;
  }

  void compare_parts(Finding& finding, Progress& progress) {
    const auto& info_a = safetensors::info(a_.entry().type);
    const auto& info_b = safetensors::info(b_.entry().type);
    const Bytes elements = safetensors::elements_of(a_.entry().shape);
    for (Bytes first = 0; first < elements; first += part_elements) {
      const Bytes count = std::min(part_elements, elements - first);
      const auto a = read(a_, info_a.bits, first, count, bytes_a_);
      const auto b = read(b_, info_b.bits, first, count, bytes_b_);
      progress.add(static_cast<Bytes>(a.size()));
      const bool equal =
          info_a.type == info_b.type && std::memcmp(a.data(), b.data(), a.size()) == 0;
      equal_bits_ = equal_bits_ && equal;
      if (!equal && info_a.dtype && info_b.dtype)
        compare(*info_a.dtype, a, *info_b.dtype, b, finding.differences);
    }
  }

  const Held &a_, &b_;
  bool equal_bits_ = true;
  std::vector<std::byte> bytes_a_, bytes_b_;
};

Finding find_differences(const std::string& name, const Held& a, const Held& b,
                         Progress& progress) {
  if (a.entry().shape != b.entry().shape)
    return {name, Verdict::OtherShape, &a.entry(), &b.entry(), {}};
  return Comparison(a, b).run(name, progress);
}

std::vector<Finding> findings_of(const Source& source_a, const Source& source_b) {
  const Names a = names_of(source_a), b = names_of(source_b);
  Progress progress("diff", source_a.bytes());
  std::vector<Finding> all;
  for (const auto& [name, held] : a) {
    const auto theirs = b.find(name);
    all.push_back(theirs == b.end()
                      ? Finding{name.second, Verdict::OnlyInA, &held.entry(), nullptr, {}}
                      : find_differences(name.second, held, theirs->second, progress));
  }
  for (const auto& [name, held] : b)
    if (!a.contains(name))
      all.push_back({name.second, Verdict::OnlyInB, nullptr, &held.entry(), {}});
  return all;
}

bool has_numbers(const Finding& finding) {
  return finding.verdict == Verdict::OtherValues || finding.verdict == Verdict::OtherDType;
}

std::string kind_of(const TensorEntry& entry) {
  return fmt::format("{} {}", safetensors::name_of(entry.type), shape_text(entry.shape));
}

std::string line_of(const Finding& finding) {
  std::string line = fmt::format("{}: {}", printable(finding.name), word_of(finding.verdict));
  const bool both = finding.a != nullptr && finding.b != nullptr;
  if (both && (finding.verdict == Verdict::OtherShape || finding.verdict == Verdict::OtherDType))
    line += fmt::format(" ({} and {})", kind_of(*finding.a), kind_of(*finding.b));
  const Differences& found = finding.differences;
  if (has_numbers(finding))
    line += fmt::format(", {} of {} elements, at most {:.6g} absolute, {:.6g} relative",
                        found.differing, safetensors::elements_of(finding.a->shape), found.absolute,
                        found.relative);
  if (found.incomparable > 0) line += fmt::format(", {} NaN on one side", found.incomparable);
  return line + "\n";
}

/// JSON has no infinity.
Value number_value(double number) {
  return std::abs(number) <= 1.7976931348623157e308 ? Value(number) : Value("infinity");
}

Value value_of(const Finding& finding) {
  Map map = map_of({{"name", finding.name}, {"verdict", word_of(finding.verdict)}});
  if (finding.a != nullptr) map.emplace_back("a", kind_of(*finding.a));
  if (finding.b != nullptr) map.emplace_back("b", kind_of(*finding.b));
  if (!has_numbers(finding)) return map;
  map.emplace_back("differing", finding.differences.differing);
  map.emplace_back("nan_on_one_side", finding.differences.incomparable);
  map.emplace_back("max_absolute", number_value(finding.differences.absolute));
  map.emplace_back("max_relative", number_value(finding.differences.relative));
  return map;
}

}  // namespace

Outcome run_diff(const DiffRequest& request) {
  const Source a = open_source(request.a), b = open_source(request.b);
  List list;
  std::string text;
  std::int64_t equal = 0, total = 0;
  for (const Finding& finding : findings_of(a, b)) {
    ++total;
    equal += finding.verdict == Verdict::Equal;
    if (finding.verdict == Verdict::Equal) continue;
    text += line_of(finding);
    list.push_back(value_of(finding));
  }
  const int code = equal == total ? success : differs;
  if (request.json)
    return {
        write_json(map_of({{"tensors", total}, {"equal", equal}, {"differing", std::move(list)}})),
        code};
  return {text + fmt::format("{} of {} tensors are equal bit for bit\n", equal, total), code};
}

}  // namespace flatshard_tool
