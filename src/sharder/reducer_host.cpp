// Gradients of an optimizer on the host: from the device to the sums there.
#include "plan_build.hpp"
#include "reducer.hpp"

namespace flatshard::detail {

void Reducer::open_slots(int unit, int index, bool last) {
  NvmeRing* const slots = runtime_.optimizer_slots.get();
  const bool on_host = sums_on_host(runtime_.plan);
  if (slots == nullptr || !(on_host || last)) return;
  slots->begin(unit);
  for (const int flat : runtime_.unit(unit).flats)
    if (on_host && index > 0) slots->read(NvmePart::Gradient, flat);
  for (const int flat : runtime_.unit(unit).flats) slots->await(NvmePart::Gradient, flat);
  runtime_.order(runtime_.host, *brought_, runtime_.download);
}

void Reducer::close_slots(int unit, bool last) {
  NvmeRing* const slots = runtime_.optimizer_slots.get();
  if (slots == nullptr || !(sums_on_host(runtime_.plan) || last)) return;
  for (const int flat : runtime_.unit(unit).flats) slots->write(NvmePart::Gradient, flat);
}

/// Reduces on the device and stores on the host, or adds there.
void Reducer::reduce_to_host(int index, const std::byte* written, bool replace, bool last,
                             bool at_once) {
  const Flat& flat = runtime_.flat(index);
  const FlatMemory& memory = runtime_.memory(index);
  Landing& landing = landings_[next_landing_];
  next_landing_ = (next_landing_ + 1) % landings_.size();
  Stream& download = runtime_.download;
  runtime_.reduce.wait(*landing.copied);
  reduce_over_ranks(flat, written, landing.data, flat.compute, flat.reduce, true);
  runtime_.order(runtime_.reduce, *landing.reduced, download);
  if (last) norm_.offer(Tier::Device, index, landing.data, flat.reduce);
  if (at_once && flat.relayed) return relay_.take(index, landing.data, *landing.copied);
  const bool direct = replace && flat.reduce == flat.accumulate;
  download.wait(direct ? *state(flat.unit).summed : *landing.added);
  runtime_.device.copy(landing.data, direct ? memory.sum_slice : landing.arrival,
                       flat.partition.slice() * size_of(flat.reduce), download);
  runtime_.order(download, *landing.copied, runtime_.host);
  if (!direct) take_arrival(flat, memory, landing, replace);
}

/// The micro-step's part is in the sum.
void Reducer::finish_on_host(int index, bool last) {
  const Flat& flat = runtime_.flat(index);
  if (last) norm_.offer(Tier::Host, index, runtime_.memory(index).gradient_slice, flat.accumulate);
  runtime_.host.record(*state(flat.unit).summed);
}

void Reducer::take_arrival(const Flat& flat, const FlatMemory& memory, Landing& landing,
                           bool replace) {
  const Elements count = flat.partition.slice();
  if (replace)
    sums_.kernels.cast(landing.arrival, flat.reduce, memory.sum_slice, flat.accumulate, count,
                       sums_.stream);
  else
    sums_.kernels.add(landing.arrival, flat.reduce, memory.sum_slice, flat.accumulate, count,
                      sums_.stream);
  runtime_.host.record(*landing.added);
}

/// The sum that was formed on the device goes to an optimizer on the host.
void Reducer::fetch_slice(int index) {
  if (!steps_on_host(runtime_.plan)) return;
  const Flat& flat = runtime_.flat(index);
  const FlatMemory& memory = runtime_.memory(index);
  runtime_.order(runtime_.reduce, *state(flat.unit).summed, runtime_.download);
  runtime_.device.copy(memory.sum_slice, memory.gradient_slice,
                       flat.partition.slice() * size_of(flat.accumulate), runtime_.download);
  runtime_.order(runtime_.download, *fetched_, runtime_.host);
  norm_.offer(Tier::Device, index, memory.sum_slice, flat.accumulate);
}

}  // namespace flatshard::detail
