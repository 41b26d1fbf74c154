// An allreduce of 16 MiB by oneCCL, four times, each element checked: mpirun -n 2 -ppn 1 ./oneccl
#include <mpi.h>

#include <cstdio>
#include <vector>

#include "oneapi/ccl.hpp"

int main(int argc, char **argv) {
    ccl::init();
    MPI_Init(&argc, &argv);
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    {
        ccl::shared_ptr_class<ccl::kvs> kvs;
        ccl::kvs::address_type address;
        if (rank == 0) {
            kvs = ccl::create_main_kvs();
            address = kvs->get_address();
        }
        MPI_Bcast(address.data(), address.size(), MPI_BYTE, 0, MPI_COMM_WORLD);
        if (rank != 0) kvs = ccl::create_kvs(address);
        auto comm = ccl::create_communicator(size, rank, kvs);
        const size_t count = 4 << 20;
        std::vector<float> mine(count), sum(count);
        for (int step = 0; step < 4; step++) {
            for (size_t i = 0; i < count; i++) mine[i] = rank + float(i & 1023);
            MPI_Barrier(MPI_COMM_WORLD);
            double began = MPI_Wtime();
            ccl::allreduce(mine.data(), sum.data(), count, ccl::reduction::sum, comm).wait();
            double took = MPI_Wtime() - began, bits = 8. * count * sizeof(float);
            size_t wrong = 0;
            for (size_t i = 0; i < count; i++) wrong += sum[i] != size * float(i & 1023) + size * (size - 1) / 2.f;
            if (rank == 0)
                printf("step %d: %.3f ms, busbw %.1f Gbit/s, %zu wrong\n", step, took * 1e3,
                       2. * (size - 1) / size * bits / took / 1e9, wrong);
        }
    }
    MPI_Finalize();
    return 0;
}
