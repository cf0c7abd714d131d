# Speed of the attention kernels beside the machine's own limits (read bandwidth, multiply-add rate).
find_package(benchmark REQUIRED)
add_executable(bench_kernels ${CMAKE_CURRENT_LIST_DIR}/kernels_bench.cpp)
target_link_libraries(bench_kernels PRIVATE kedge_kernels benchmark::benchmark)
