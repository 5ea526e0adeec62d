/* Which columns suit what: a target, a model, a statistic. */

export function targets(columns, fits) {
  return columns.filter(fits).map((column) => column.name);
}

export const twoClasses = (column) => column.categories !== null && column.categories.length === 2;
export const ofNumbers = (column) => column.categories === null;
