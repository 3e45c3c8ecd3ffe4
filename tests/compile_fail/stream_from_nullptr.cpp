// A stream reference comes from a stream: there is no default stream.
// expect: deleted
// expect: StreamRef
#include <flatshard/core/stream.hpp>

void enqueue(flatshard::StreamRef stream);

void run(flatshard::Stream& stream) {
#ifdef BAD
  (void)stream;
  enqueue(nullptr);
#else
  enqueue(stream);
#endif
}
