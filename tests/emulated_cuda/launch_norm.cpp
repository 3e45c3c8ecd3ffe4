// In place of the kernels of the norm: the host's, as work of the stream.
#include "../../kernels/cuda/launchers.hpp"

#include "launchers.hpp"

namespace flatshard::cuda {

using emulated::Array;
using emulated::expect;
using emulated::launch;
using emulated::on_host;
using emulated::spoil;
using emulated::table_at;
using emulated::touch;
using emulated::touch_elements;
using emulated::Work;

Elements norm_block_elements(DType) { return 1000; }  // to test what counts blocks

namespace {

void measure_node(NormForm form, const void* buffer, DType dtype, const NormEntry& entry,
                  double* value) {
  const NormNode node{entry.offset, entry.count, 0};
  touch_elements(static_cast<const std::byte*>(buffer) + entry.offset * size_of(dtype), dtype,
                 entry.count);
  on_host([&](const KernelTable& kernels, StreamRef stream) {
    if (form == NormForm::Squares)
      kernels.square_sums(buffer, dtype, {&node, 1}, value, stream);
    else
      kernels.absolute_maxima(buffer, dtype, {&node, 1}, value, stream);
  });
}

void measure(NormForm form, const void* buffer, DType dtype, std::span<const NormEntry> nodes,
             const NormScratch& scratch, double* values) {
  touch(values, nodes.size_bytes() / sizeof(NormEntry) * sizeof(double));
  for (std::size_t k = 0; k < nodes.size(); ++k) {
    touch(scratch.counters + k, sizeof(unsigned));
    expect(scratch.counters[k] == 0, "a counter of the norm is not zero");
    measure_node(form, buffer, dtype, nodes[k], values + k);
  }
}

/// One level's adds are independent: in any order, so from the last to the first.
void merge_levels(NormForm form, std::span<const NormAdd> adds, std::span<const int> ends,
                  double* values) {
  int begin = 0;
  for (const int end : ends) {
    for (int k = end - 1; k >= begin; --k) {
      const NormAdd& add = adds[static_cast<std::size_t>(k)];
      double& into = values[add.into];
      const double from = values[add.from];
      into = form == NormForm::Squares ? into + from : larger_magnitude(into, from);
    }
    begin = end;
  }
}

}  // namespace

void launch_norm(NormForm form, const void* buffer, DType dtype, std::span<const NormEntry> nodes,
                 Elements blocks, Elements groups, const NormScratch& scratch, double* values,
                 cudaStream_t stream) {
  const std::size_t size = nodes.size();
  expect(scratch.table != nullptr || size <= inline_nodes, "a norm needs a table of its nodes");
  const std::size_t kept = scratch.table == nullptr ? size : 0;
  Array<NormEntry> inline_table(nodes.begin(), nodes.begin() + static_cast<long>(kept));
  launch(stream, Work([=, inline_table = std::move(inline_table)] {
           const bool has_table = scratch.table != nullptr;
           measure(
               form, buffer, dtype,
               has_table ? table_at(scratch.table, size) : std::span<const NormEntry>(inline_table),
               scratch, values);
           spoil(scratch.partials, blocks * Bytes{sizeof(double)});
           spoil(scratch.sums, groups * Bytes{sizeof(double)});
         }));
}

void launch_merge(NormForm form, const NormAdd* adds, const int* ends, int levels, int value_count,
                  double* values, cudaStream_t stream) {
  launch(stream, Work([=] {
           const auto all_ends = table_at(ends, static_cast<std::size_t>(levels));
           touch(values, static_cast<std::size_t>(value_count) * sizeof(double));
           const auto count = static_cast<std::size_t>(levels > 0 ? all_ends.back() : 0);
           merge_levels(form, table_at(adds, count), all_ends, values);
         }));
}

}  // namespace flatshard::cuda
