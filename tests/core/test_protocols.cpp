// These tests check that committed arrays survive power cuts, kills and errors (protocol_tests.hpp).
#include "protocol_tests.hpp"

namespace outcrop::model {
namespace {

constexpr Protocol slots{"slots", live_of_slots, 1500};

INSTANTIATE_TEST_SUITE_P(Of, Protocols, ::testing::Values(slots), name_of);
INSTANTIATE_TEST_SUITE_P(On, Mistakes,
                         ::testing::Values(Mistake{"NoFlushBeforeRename", Mutation::no_flush_before_rename, slots},
                                           Mistake{"FlushOfTheWrongFile", Mutation::flush_of_the_wrong_file, slots},
                                           Mistake{"CleanUpWithoutTheLock", Mutation::clean_up_without_the_lock, slots},
                                           Mistake{"OverwriteOfCurrentSlot", Mutation::overwrite_of_current_slot,
                                                   slots},
                                           Mistake{"RecordBeforeData", Mutation::record_before_data, slots}),
                         name_of_mistake);

}  // namespace
}  // namespace outcrop::model
