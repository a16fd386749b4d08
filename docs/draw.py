"""Draw the picture of the README: ``python docs/draw.py`` writes docs/projections.png."""

from pathlib import Path

from topkopt._demo.layout import new_figure
from topkopt._demo.operators import PANELS, draw_sets

figure = new_figure(9, 3.3)
draw_sets(figure.subplots(1, len(PANELS)))
figure.savefig(Path(__file__).with_name("projections.png"), dpi=100)
