// These tests check that stages and node files survive power cuts, kills and errors (protocol_tests.hpp).
#include "protocol_tests.hpp"

namespace outcrop::model {
namespace {

constexpr Protocol stages{"stages", live_of_stages, 1500}, listings{"listings", live_of_listings, 500};

INSTANTIATE_TEST_SUITE_P(Of, Protocols, ::testing::Values(stages, listings), name_of);
INSTANTIATE_TEST_SUITE_P(On, Mistakes,
                         ::testing::Values(Mistake{"NoFlushBeforeRename", Mutation::no_flush_before_rename, stages},
                                           Mistake{"NoFlushBeforeRename", Mutation::no_flush_before_rename, listings},
                                           Mistake{"FlushOfTheWrongFile", Mutation::flush_of_the_wrong_file, stages},
                                           Mistake{"CleanUpWithoutTheLock", Mutation::clean_up_without_the_lock,
                                                   stages},
                                           Mistake{"RecordBeforeData", Mutation::record_before_data, stages}),
                         name_of_mistake);

}  // namespace
}  // namespace outcrop::model
