/* Round trips between ranks 0 and 1, as osu_latency and osu_bw measure them: mpicc -O2 -o ping ping.c */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 20 };

int main(int argc, char **argv) {
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    char *data = calloc(1, 4 << 20);
    for (int size = 1; size <= 4 << 20; size *= 16) {
        MPI_Barrier(MPI_COMM_WORLD);
        double began = 0;
        for (int round = -2; round < ROUNDS && rank < 2; round++) { /* Two more first, which are not counted. */
            if (round == 0)
                began = MPI_Wtime();
            if (rank == 0)
                MPI_Send(data, size, MPI_CHAR, 1, 0, MPI_COMM_WORLD);
            MPI_Recv(data, size, MPI_CHAR, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (rank == 1)
                MPI_Send(data, size, MPI_CHAR, 0, 0, MPI_COMM_WORLD);
        }
        double one_way_s = (MPI_Wtime() - began) / ROUNDS / 2;
        if (rank == 0)
            printf("%8d B  %10.2f us  %8.2f Gbit/s\n", size, one_way_s * 1e6, size * 8 / one_way_s / 1e9);
    }
    MPI_Finalize();
    return 0;
}
