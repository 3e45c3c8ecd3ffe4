#include "../sharded_trainer.hpp"

namespace train_gpt {

template TrainerType<double> trainer_type<flatshard::precision::Full<double>>(Strategy);

}  // namespace train_gpt
