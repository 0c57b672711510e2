// Writes a business row and its event, from .NET with Npgsql and EF Core.

using System.Text.Json;
using Microsoft.EntityFrameworkCore;

public class Order
{
    public Guid Id { get; set; } = Guid.NewGuid();
    public required string State { get; set; }
}

public class Shop(DbContextOptions<Shop> options) : DbContext(options)
{
    public DbSet<Order> Orders => Set<Order>();

    protected override void OnModelCreating(ModelBuilder model) =>
        model.Entity<Order>(order =>
        {
            order.ToTable("orders");
            order.Property(it => it.Id).HasColumnName("id");
            order.Property(it => it.State).HasColumnName("state");
        });

    public async Task PlaceOrder(object[] lines)
    {
        await using var transaction = await Database.BeginTransactionAsync();
        var order = new Order { State = "placed" };
        Orders.Add(order);
        await SaveChangesAsync(); // the business row first
        var (payload, headers) = (JsonSerializer.Serialize(lines), new[] { "source", "shop" });
        await Database.ExecuteSqlAsync(
            $"""
            select posthaste.emit('orders', {payload}::jsonb, key => {order.Id},
                                  type => 'order.placed', headers => {headers})
            """);
        await transaction.CommitAsync();
    }
}
