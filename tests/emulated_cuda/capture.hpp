// Streams that are captured into graphs: what they are given is kept, in the order in which it was
// issued, which is an order that all waits allow; a launch runs it in that order.
#pragma once

#include <map>
#include <memory>

#include "stream.hpp"

namespace emulated {

/// By stream: how many pieces of work of a capture come before. A stream joins by having an entry.
using Seen = std::map<const Progress*, std::size_t>;

struct Capture {
  unsigned long long id;
  Array<Work> work;
  std::map<const Progress*, Seen> streams;
  bool ended = false;
  bool valid = true;
};

/// A place in a capture.
struct CapturedMark {
  std::shared_ptr<Capture> capture;  // null: none
  Seen seen;
};

/// The capture that the stream is in now, or null.
std::shared_ptr<Capture> capture_of(const CUstream_st& stream);
/// Whether the stream is being captured; then the work is the graph's.
bool add_to_capture(CUstream_st& stream, const Work& work);
/// Whether the stream is being captured; then the capture comes to nothing.
bool invalidates_capture(const CUstream_st& stream);
CapturedMark captured_mark(const CUstream_st& stream);
/// The stream joins the mark's capture, behind the mark.
cudaError_t wait_in_capture(CUstream_st& stream, const CapturedMark& mark);

}  // namespace emulated
