"""Real Slurm in the place of the project's own scheduler, behind the same interface: a platform with ``engine: slurm``.

::

    installed       what of Slurm is missing here
    configuration   slurm.conf and what stands beside it, from a fabric, a policy and timers; pure
    answers         what scontrol prints, as values; pure
    watching        what came to pass between two looks, as the platform's events; pure
    rank_program    what Slurm starts on each node of a job: the user's program, with the platform's environment
    daemons         Slurm's daemons, each in a world of its own
    commands        sbatch, scontrol and scancel
    submitting      jobs on their way to Slurm: when they are due, and again if Slurm did not take them
    standing        what is known of a cluster whose jobs have not ended, for errors
    programs        the programs in hosts of a run: who keeps a slurmd, who keeps the controller and submits jobs
    job             all of it as a job of a run

slurmctld and munged are on the management host, a slurmd in each other host, and what they tell each other are packets
of the fabric. Slurm decides, starts, notices and stops; programs here only submit, look and write down.
"""
