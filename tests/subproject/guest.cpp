#include <flatshard/core/host_stream.hpp>

int main() {
  flatshard::make_host_stream(flatshard::StreamForm::Threaded)->synchronize();
  return 0;
}
