# Speed of the kernels and of eviction's parts beside the machine's own limits (read bandwidth, multiply-add rate).
find_package(benchmark REQUIRED)
add_executable(bench_kernels ${CMAKE_CURRENT_LIST_DIR}/kernels_bench.cpp ${CMAKE_CURRENT_LIST_DIR}/walls.cpp)
target_link_libraries(bench_kernels PRIVATE kedge_kernels benchmark::benchmark)

add_executable(bench_eviction ${CMAKE_CURRENT_LIST_DIR}/eviction_bench.cpp ${CMAKE_CURRENT_LIST_DIR}/walls.cpp)
target_link_libraries(bench_eviction PRIVATE kedge_eviction benchmark::benchmark)
